"""The two sides of hook that sends updates, or the model, through a codec."""

from __future__ import annotations

import numpy as np

from layers.logic.compression.codec import Codec, parts_of
from layers.logic.compression.download import ServerDownload, receive_model
from layers.logic.compression.upload import receive_encoded, send_encoded
from layers.logic.core.hook import ClientSide, Context, ServerSide
from layers.logic.core.messages import Task, Update
from layers.logic.core.state import ServerState


class CodecServerSide(ServerSide):
    """The server's side: it decodes updates, and encodes the changes of the model.

    Args:
        up: codec of the updates; None leaves them dense.
        down: codec of the model's changes; None sends the model dense.
        flat: whether the whole vector counts as one tensor.
        feedback: whether what the codec left out of one change is added to the next one.
    """

    def __init__(
        self, up: Codec | None, down: Codec | None, flat: bool = False, feedback: bool = True
    ) -> None:
        self._up = up
        self._down = down
        self._flat = flat
        self._feedback = feedback
        self._download: ServerDownload | None = None

    def send(self, task: Task, context: Context) -> Task:
        """Return the task with the changes that the client has missed, or with the model."""
        download = self._downloads(context)
        return task if download is None else download.send(task, context)

    def receive(self, update: Update, context: Context) -> Update:
        """Return the update with its delta decoded."""
        if self._up is None:
            return update
        return receive_encoded(update, context, self._up, self._parts(context))

    def on_accepted(self, update: Update, context: Context) -> None:
        """Note which model the client keeps."""
        download = self._downloads(context)
        if download is not None:
            download.on_accepted(update, context)

    def conclude(self, state: ServerState, context: Context) -> ServerState:
        """Encode the change of the model, and return the state with what the code stands for."""
        download = self._downloads(context)
        return state if download is None else download.conclude(state, context)

    def _parts(self, context: Context) -> np.ndarray:
        return parts_of(context.layout, self._flat)

    def _downloads(self, context: Context) -> ServerDownload | None:
        if self._download is None and self._down is not None:
            self._download = ServerDownload(self._down, self._parts(context), self._feedback)
        return self._download


class CodecClientSide(ClientSide):
    """The client's side: it encodes updates, and brings the client's model up to date.

    Args:
        up: codec of the updates; None leaves them dense.
        down: codec of the model's changes; None: the model comes dense.
        flat: whether the whole vector counts as one tensor.
        feedback: whether what the codec left out of one update is added to the next one.
    """

    def __init__(
        self, up: Codec | None, down: Codec | None, flat: bool = False, feedback: bool = True
    ) -> None:
        self._up = up
        self._down = down
        self._flat = flat
        self._feedback = feedback

    def receive(self, task: Task, context: Context) -> Task:
        """Return the task with the server's model."""
        if self._down is None:
            return task
        return receive_model(task, context, self._down, parts_of(context.layout, self._flat))

    def send(self, update: Update, context: Context) -> Update:
        """Return the update with its delta encoded."""
        if self._up is None:
            return update
        parts = parts_of(context.layout, self._flat)
        return send_encoded(update, context, self._up, parts, self._feedback)
