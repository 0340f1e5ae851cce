"""The server side and the client side of a hook that sends updates, or the model, through a codec.

Updates go up encoded, with error feedback on the client (Seide et al. 2014; Sattler et al. 2019,
algorithm 2): acc = delta + residual is encoded, and residual = acc - decoded is added to the
client's next update, however many rounds later.

The model goes down as encoded changes. After each round the server encodes the change of the
model, applies the decoded change, and adds the rest to the next change (Sattler et al. 2019,
section 5; residual on the server). It keeps the payloads while their sum is smaller than the model.
A client keeps the model that it received. Its next task holds the payloads of the rounds since
then; the client decodes them and adds them in the server's order, which gives the server's model,
bit for bit. A client that is new, lost its memory, or missed too much gets the whole model.
"""

from __future__ import annotations

import zlib
from collections.abc import Set
from dataclasses import replace
from weakref import WeakValueDictionary

import numpy as np

from layers.logic.compression.codecs import Codec, parts_of
from layers.logic.core.declaration import Trait, encoded
from layers.logic.core.hook import ClientContext, ClientSide, Hook, ServerContext, ServerSide
from layers.logic.core.messages import EMPTY, Slot, Task, Update
from layers.logic.core.state import ServerState, frozen
from layers.logic.errors import LogicError, NotUsable, Rejected

PAYLOAD = "update"  # in the slot of an update
MISSED = "missed"  # in the slot of a task: the payloads of the missed rounds


class CodecHook(Hook):
    """A hook that sends updates, or changes of the model, through codecs.

    Attributes:
        flat: treat the whole vector as one tensor.
        feedback: whether the error of one encoded vector is added to the next vector.
    """

    flat = False
    feedback = True

    def codecs(self) -> tuple[Codec | None, Codec | None]:
        """Return the codecs of updates and of the model's changes; None: dense."""
        raise NotImplementedError

    @property
    def provides(self) -> Set[Trait]:
        """The encodings of this hook."""
        up, down = self.codecs()
        return encoded(up is not None, down is not None) | {Trait.KEEPS_NAMES}

    def server(self) -> ServerSide:
        """Return the side that decodes updates and encodes the changes of the model."""
        return CodecServerSide(*self.codecs(), self.flat, self.feedback)

    def client(self) -> ClientSide:
        """Return the side that encodes updates, and keeps the residual and the model."""
        return CodecClientSide(*self.codecs(), self.flat, self.feedback)


class CodecServerSide(ServerSide):
    """Decodes updates, and encodes the changes of the model.

    Args:
        up: codec of the updates; None: updates are dense.
        down: codec of the model's changes; None: the model is sent dense.
        flat: treat the whole vector as one tensor.
        feedback: whether the error of one encoded change is added to the next change.
    """

    def __init__(
        self, up: Codec | None, down: Codec | None, flat: bool = False, feedback: bool = True
    ) -> None:
        self._up = up
        self._down = down
        self._flat = flat
        self._feedback = feedback
        self._checksum: int | None = None  # of the model with which the round began
        self._sent_another_model: set[int] = set()  # clients
        self._accepted: set[int] = set()

    def receive(self, update: Update, context: ServerContext) -> Update:
        """Return the update with its delta decoded."""
        if self._up is None:
            return update
        return receive_encoded(update, context, self._up, parts_of(context.layout, self._flat))

    def send(self, task: Task, context: ServerContext) -> Task:
        """Return the task, with the missed changes in the slot if they are less than the model."""
        if self._down is None:
            return task
        if task.weights is not context.start:
            # The client continues another client of its lane, or another hook changed the weights.
            self._sent_another_model.add(task.client)
            return task
        missed = self._missed(task, context)
        if missed is None:
            return task
        context.slot[MISSED] = np.concatenate(missed)
        context.slot["lengths"] = np.array([payload.size for payload in missed], np.int64)
        context.slot["checksum"] = self._checksum
        return replace(task, weights=EMPTY)

    def on_accepted(self, update: Update, context: ServerContext) -> None:
        """Record whether the client now keeps a model other than that of its round."""
        if self._down is None:
            return
        self._accepted.add(update.client)
        others = dict(context.memory.get("strange", {}))
        if update.round == context.round:
            has_another = update.client in self._sent_another_model
        else:
            has_another = context.memory.get("unanswered", {}).get(update.client) == update.round
        if has_another:
            others[update.client] = update.round
        elif others.pop(update.client, None) is None:
            return
        context.keep(strange=others)

    def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
        """Encode the change of the model; return the state with the model that clients will have.

        Raises:
            NotUsable: the aggregated model is not finite.
        """
        if self._down is None:
            return state
        self._record_unanswered(state, context)
        payload = np.zeros(0, np.uint8)  # if no update was accepted
        if state.weights is not context.start:
            change = _change(state, context)
            if "residual" in context.memory:
                change += context.memory["residual"]
            if not np.isfinite(change).all():
                raise NotUsable(
                    f"round {context.round}: the aggregated model is not finite, so its change "
                    "cannot be encoded; lower the learning rate, or clip the updates"
                )
            parts = parts_of(context.layout, self._flat)
            payload = self._down.encode(change, parts, context.rng("download"))
            sent = self._down.decode(payload, parts)
            state = replace(state, weights=context.start + sent)
            if self._feedback:
                change -= sent
                context.keep(residual=change)
        payloads = {**context.memory.get("payloads", {}), context.round: payload}
        total = sum(payload.nbytes for payload in payloads.values())
        for round in sorted(payloads):
            if total < state.weights.nbytes:
                break
            total -= payloads.pop(round).nbytes
        context.keep(payloads=payloads, checksum=checksum(state.weights))
        return state

    def _record_unanswered(self, state: ServerState, context: ServerContext) -> None:
        """Record the clients that were sent another model and may still answer late."""
        before = context.memory.get("unanswered", {})
        waiting = {
            client: round
            for client, round in before.items()
            if client in state.in_flight and state.in_flight[client].round == round
        }
        waiting.update(dict.fromkeys(self._sent_another_model, context.round))
        unanswered = {one: waiting[one] for one in sorted(waiting) if one not in self._accepted}
        if unanswered or before:
            context.keep(unanswered=unanswered)

    def _missed(self, task: Task, context: ServerContext) -> list[np.ndarray] | None:
        """Return the payloads that bring the client's model up to date; None: send the model."""
        memory, since = context.memory, task.last_accepted_round
        if not since or memory.get("strange", {}).get(task.client) == since:
            return None
        if self._checksum is None:
            self._checksum = checksum(context.start)
        if self._checksum != memory.get("checksum"):
            return None  # another hook changed the model after this one
        # The client has the model that its last accepted update started from.
        base = since - 1 if context.base is None else context.base
        payloads = [memory["payloads"].get(round) for round in range(base + 1, context.round)]
        missed = [payload for payload in payloads if payload is not None]
        # All that are kept are together smaller than the model.
        return missed if len(missed) == len(payloads) else None


class CodecClientSide(ClientSide):
    """Encodes updates, and brings the client's model up to date.

    Args:
        up: codec of the updates; None: updates are dense.
        down: codec of the model's changes; None: the model is received dense.
        flat: treat the whole vector as one tensor.
        feedback: whether the error of one encoded update is added to the next update.
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
        """Return the update with its delta encoded; an update that is not finite stays as it is."""
        if self._up is None:
            return update
        parts, wanted = parts_of(context.layout, self._flat), update.delta
        if self._feedback and "residual" in context.memory:
            wanted = wanted + context.memory["residual"]
        if not np.isfinite(wanted).all():
            return update  # the server rejects it and says why
        payload = self._up.encode(wanted, parts, context.rng("upload"))
        if self._feedback:
            context.keep(residual=wanted - self._up.decode(payload, parts))
        return send_payload(update, context, payload)


# --- updates ---------------------------------------------------------------------------------


def send_payload(update: Update, context: ClientContext, payload: np.ndarray) -> Update:
    """Return the update without its delta, and put `payload` into the slot."""
    context.slot[PAYLOAD] = payload
    return replace(update, delta=EMPTY)


def receive_encoded(
    update: Update, context: ServerContext, codec: Codec, parts: np.ndarray
) -> Update:
    """Return the update with the delta that its payload encodes.

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


# --- the model -------------------------------------------------------------------------------


def receive_model(task: Task, context: ClientContext, codec: Codec, parts: np.ndarray) -> Task:
    """Return the task with the model, on the client, and keep the model for the next task.

    Raises:
        LogicError: the client keeps no model, or the result is not the server's model.
        Rejected: the server cannot have sent this slot.
    """
    if MISSED not in context.slot:
        context.keep(model=_shared(task.weights.copy(), checksum(task.weights)))
        return task
    model = _caught_up(context, codec, parts)
    found = checksum(model)
    if found != context.slot.get("checksum"):
        raise LogicError(
            f"round {context.round}: the model plus the missed updates is not the server's model; "
            "this client's memory is of another run, or both ends have different code"
        )
    model = _shared(model, found)
    context.keep(model=model)
    return replace(task, weights=model)


def _caught_up(context: ClientContext, codec: Codec, parts: np.ndarray) -> np.ndarray:
    """Return the client's model plus the missed changes."""
    if "model" not in context.memory:
        raise LogicError(
            f"round {context.round}: the server sent what changed since this client's last round, "
            "but this client keeps no model"
        )
    model: np.ndarray = context.memory["model"].copy()
    missed, lengths = payload_of(context.slot, MISSED), context.slot.get("lengths")
    if not isinstance(lengths, np.ndarray) or lengths.sum() != missed.size:
        raise Rejected("the lengths of the missed updates do not add up to their bytes")
    stop = 0
    for length in lengths.tolist():
        payload, stop = missed[stop : stop + length], stop + length
        if length:  # a round without an accepted update changed nothing
            model += codec.decode(payload, parts)
    return model


def _change(state: ServerState, context: ServerContext) -> np.ndarray:
    """Return the change of the model, float32 (d,): the exact summand where it is known."""
    if state.change.size and np.array_equal(context.start + state.change, state.weights):
        change: np.ndarray = state.change.copy()
    else:  # something has changed the model since
        change = state.weights - context.start
    return change


def _shared(model: np.ndarray, key: int) -> np.ndarray:
    """Return a read-only vector with the bits of `model`, which clients of this process share.

    So a simulation of hundreds of clients holds each model once.
    """
    known = _MODELS.get(key)
    if known is None or not np.array_equal(known.view(np.uint32), model.view(np.uint32)):
        _MODELS[key] = known = frozen(model)
    return known


_MODELS: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()


def checksum(vector: np.ndarray) -> int:
    """Return the CRC-32 of a vector's bytes."""
    return zlib.crc32(np.ascontiguousarray(vector).view(np.uint8).data)
