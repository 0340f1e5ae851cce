"""The two sides of hook that sends updates, or the model, through a codec."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from layers.logic.compression.codecs import Codec, parts_of
from layers.logic.core.hook import ClientContext, ClientSide, Context, ServerContext, ServerSide
from layers.logic.core.messages import EMPTY, Slot, Task, Update
from layers.logic.core.state import ServerState, frozen
from layers.logic.errors import LogicError, NotUsable, Rejected


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

    def send(self, task: Task, context: ServerContext) -> Task:
        """Return the task with the changes that the client has missed, or with the model."""
        download = self._downloads(context)
        return task if download is None else download.send(task, context)

    def receive(self, update: Update, context: ServerContext) -> Update:
        """Return the update with its delta decoded."""
        if self._up is None:
            return update
        return receive_encoded(update, context, self._up, self._parts(context))

    def on_accepted(self, update: Update, context: ServerContext) -> None:
        """Note which model the client keeps."""
        download = self._downloads(context)
        if download is not None:
            download.on_accepted(update, context)

    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        """Encode the change of the model, and return the state with what the code stands for."""
        download = self._downloads(context)
        return state if download is None else download.conclude(state, context)

    def _parts(self, context: ServerContext) -> np.ndarray:
        return parts_of(context.layout, self._flat)

    def _downloads(self, context: ServerContext) -> ServerDownload | None:
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

    def receive(self, task: Task, context: ClientContext) -> Task:
        """Return the task with the server's model."""
        if self._down is None:
            return task
        return receive_model(task, context, self._down, parts_of(context.layout, self._flat))

    def send(self, update: Update, context: ClientContext) -> Update:
        """Return the update with its delta encoded."""
        if self._up is None:
            return update
        parts = parts_of(context.layout, self._flat)
        return send_encoded(update, context, self._up, parts, self._feedback)


PAYLOAD = "update"


def send_encoded(
    update: Update, context: Context, codec: Codec, parts: np.ndarray, feedback: bool
) -> Update:
    """Return the update without its delta, and put the delta's payload into the slot.

    An update that is not finite is returned unchanged.

    Args:
        codec: of the delta.
        parts: int64 (tensors + 1,), the tensors' boundaries.
        feedback: whether what the codec left out of one update is added to the next one.
    """
    wanted = update.delta
    if feedback and "residual" in context.memory:
        wanted = wanted + context.memory["residual"]
    if not np.isfinite(wanted).all():
        return update  # unchanged: the server rejects it and says why
    payload = codec.encode(wanted, parts, context.rng("upload"))
    if feedback:
        context.keep(residual=wanted - codec.decode(payload, parts))
    return send_payload(update, context, payload)


def send_payload(update: Update, context: Context, payload: np.ndarray) -> Update:
    """Return the update without its delta, and put `payload` into the slot."""
    context.slot[PAYLOAD] = payload
    return replace(update, delta=EMPTY)


def receive_encoded(update: Update, context: Context, codec: Codec, parts: np.ndarray) -> Update:
    """Return the update with the delta that its payload stands for.

    Raises:
        Rejected: there is no payload, or the codec cannot have made it.
    """
    if PAYLOAD not in context.slot and not np.isfinite(update.delta).all():
        return update  # the server's next check rejects it
    payload = payload_of(context.slot, PAYLOAD)
    return replace(update, delta=codec.decode(payload, parts))


def payload_of(slot: Slot, name: str) -> np.ndarray:
    """Return the payload with this name in a slot, uint8 (bytes,).

    Raises:
        Rejected: there are no bytes with this name.
    """
    payload = slot.get(name)
    if not isinstance(payload, np.ndarray) or payload.dtype != np.uint8 or payload.ndim != 1:
        raise Rejected(f"no bytes in the slot's {name!r}, where an encoded vector should be")
    return payload


MISSED = "missed"


class ServerDownload:
    """The server's end, for one round.

    Args:
        codec: of the model's changes.
        parts: int64 (tensors + 1,), the tensors' boundaries.
        feedback: whether what the codec left out of one change is added to the next one.
    """

    def __init__(self, codec: Codec, parts: np.ndarray, feedback: bool) -> None:
        self._codec = codec
        self._parts = parts
        self._feedback = feedback
        self._checksum: int | None = None
        self._strange: set[int] = set()  # clients that were not sent the global model
        self._accepted: set[int] = set()

    def send(self, task: Task, context: ServerContext) -> Task:
        """Return the task, with the missed changes in the slot if they are less than the model."""
        if task.weights is not context.start:
            # The client continues another client of its lane, or another hook changed the weights.
            self._strange.add(task.client)
            return task
        missed = self._missed(task, context)
        if missed is None:
            return task
        context.slot[MISSED] = np.concatenate(missed)
        context.slot["lengths"] = np.array([payload.size for payload in missed], np.int64)
        context.slot["checksum"] = self._checksum
        return replace(task, weights=EMPTY)

    def on_accepted(self, update: Update, context: ServerContext) -> None:
        """Note which clients keep another model than that of their round."""
        self._accepted.add(update.client)
        strange = dict(context.memory.get("strange", {}))
        if update.round == context.round:
            other_model = update.client in self._strange
        else:
            other_model = context.memory.get("unanswered", {}).get(update.client) == update.round
        if other_model:
            strange[update.client] = update.round
        elif strange.pop(update.client, None) is None:
            return
        context.keep(strange=strange)

    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        """Return the state with the model that the clients will have.

        Raises:
            NotUsable: the aggregated model is not finite.
        """
        self._note_unanswered(state, context)
        if state.weights is context.start:
            return self._keep(state, context, np.zeros(0, np.uint8))  # no update was accepted
        change = _change(state, context)
        if "residual" in context.memory:
            change += context.memory["residual"]
        if not np.isfinite(change).all():
            raise NotUsable(
                f"round {context.round}: the aggregated model is not finite, so its change cannot "
                "be encoded; lower the learning rate, or clip the updates"
            )
        payload = self._codec.encode(change, self._parts, context.rng("download"))
        sent = self._codec.decode(payload, self._parts)
        state = replace(state, weights=context.start + sent)
        if self._feedback:
            change -= sent
            context.keep(residual=change)
        return self._keep(state, context, payload)

    def _note_unanswered(self, state: ServerState, context: ServerContext) -> None:
        """Note whose task brought another model than that of its round and may be answered late."""
        before = context.memory.get("unanswered", {})
        waiting = {
            client: round
            for client, round in before.items()
            if client in state.in_flight and state.in_flight[client].round == round
        }
        waiting.update(dict.fromkeys(self._strange, context.round))
        unanswered = {one: waiting[one] for one in sorted(waiting) if one not in self._accepted}
        if unanswered or before:
            context.keep(unanswered=unanswered)

    def _missed(self, task: Task, context: ServerContext) -> list[np.ndarray] | None:
        """Return the payloads that bring the client's model up to date, or None."""
        memory = context.memory
        if (
            not task.last_accepted_round
            or memory.get("strange", {}).get(task.client) == task.last_accepted_round
        ):
            return None
        if self._checksum is None:
            self._checksum = checksum(context.start)
        if self._checksum != memory.get("checksum"):
            return None  # another hook changed the model after this one
        # The client has the model with which its last accepted round began.
        payloads = [
            memory["payloads"].get(r) for r in range(task.last_accepted_round, context.round)
        ]
        missed = [payload for payload in payloads if payload is not None]
        whole = len(missed) == len(payloads)
        if not whole or sum(payload.nbytes for payload in missed) >= context.start.nbytes:
            return None
        return missed

    def _keep(self, state: ServerState, context: ServerContext, payload: np.ndarray) -> ServerState:
        payloads = {**context.memory.get("payloads", {}), context.round: payload}
        total = sum(payload.nbytes for payload in payloads.values())
        for round in sorted(payloads):
            if total < state.weights.nbytes:
                break
            total -= payloads.pop(round).nbytes
        context.keep(payloads=payloads, checksum=checksum(state.weights))
        return state


def _change(state: ServerState, context: ServerContext) -> np.ndarray:
    """Return what was added to the model, float32 (d,): as it was added, wherever that is known."""
    if state.change.size and np.array_equal(context.start + state.change, state.weights):
        change: np.ndarray = state.change.copy()
    else:  # something has changed the model since
        change = state.weights - context.start
    return change


def receive_model(task: Task, context: Context, codec: Codec, parts: np.ndarray) -> Task:
    """Return the task with the model, on the client, and keep the model for the next task.

    Raises:
        LogicError: the client keeps no model, or the result is not the server's model.
        Rejected: the slot does not hold what the server would have sent.
    """
    if MISSED not in context.slot:
        context.keep(model=_shared(task.weights.copy(), checksum(task.weights)))
        return task
    model = _caught_up(context.memory, context, codec, parts)
    found = checksum(model)
    if found != context.slot.get("checksum"):
        raise LogicError(
            f"round {context.round}: the model plus the missed updates is not the server's model; "
            "this client's memory is of another run, or both ends have different code"
        )
    model = _shared(model, found)
    context.keep(model=model)
    return replace(task, weights=model)


def _caught_up(
    memory: Mapping[str, Any], context: Context, codec: Codec, parts: np.ndarray
) -> np.ndarray:
    if "model" not in memory:
        raise LogicError(
            f"round {context.round}: the server sent what changed since this client's last round, "
            "but this client keeps no model"
        )
    model: np.ndarray = memory["model"].copy()
    missed, lengths = payload_of(context.slot, MISSED), context.slot.get("lengths")
    if not isinstance(lengths, np.ndarray) or lengths.sum() != missed.size:
        raise Rejected("the lengths of the missed updates do not add up to their bytes")
    stop = 0
    for length in lengths.tolist():
        payload, stop = missed[stop : stop + length], stop + length
        if length:  # a round without an accepted update changed nothing
            model += codec.decode(payload, parts)
    return model


def _shared(model: np.ndarray, key: int) -> np.ndarray:
    """Return a read-only vector with the bits of `model`.

    If a client of this process keeps such a vector already, that one is returned: a simulation of
    hundreds of clients then holds each model once.
    """
    known = _MODELS.get(key)
    if known is None or not np.array_equal(known.view(np.uint32), model.view(np.uint32)):
        _MODELS[key] = known = frozen(model)
    return known


_MODELS: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()


def checksum(vector: np.ndarray) -> int:
    """Return the CRC-32 of a vector's bytes."""
    return zlib.crc32(np.ascontiguousarray(vector).view(np.uint8).data)
