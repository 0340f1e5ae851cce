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
from layers.logic.core.messages import EMPTY, Task, Update, vector_in
from layers.logic.core.state import ServerState, frozen
from layers.logic.errors import LogicError, NotUsable, Rejected

PAYLOAD = "update"  # in the slot of an update
MISSED = "missed"  # in the slot of a task: the payloads of the missed rounds
LENGTHS = "lengths"  # of each of them


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
        return encoded(up is not None, down is not None)

    @property
    def follows(self) -> frozenset[Trait]:
        """What follows from its methods; the server remembers only which clients sent updates."""
        return super().follows - {Trait.SENDS_MORE, Trait.USES_SINGLE}

    class Server(ServerSide["CodecHook"]):
        """Decodes updates, and encodes the changes of the model."""

        def __init__(self, hook: CodecHook) -> None:
            super().__init__(hook)
            self._up, self._down = hook.codecs()
            self._checksum: int | None = None  # of the model with which the round began
            self._sent_another_model: set[int] = set()  # clients
            self._accepted: set[int] = set()

        def receive(self, update: Update, context: ServerContext) -> Update:
            if self._up is None:
                return update
            parts = parts_of(context.layout, self.hook.flat)
            return receive_encoded(update, context, self._up, parts)

        def send(self, task: Task, context: ServerContext) -> Task:
            if self._down is None:
                return task
            if task.weights is not context.start:
                # The client continues another of its lane, or another hook changed the weights.
                self._sent_another_model.add(task.client)
                return task
            missed = self._missed(task, context)
            if missed is None:
                return task
            context.slot[MISSED] = np.concatenate(missed)
            context.slot[LENGTHS] = np.array([payload.size for payload in missed], np.int64)
            context.slot["checksum"] = self._checksum
            return replace(task, weights=EMPTY)

        def on_accepted(self, update: Update, context: ServerContext) -> None:
            if self._down is None:
                return
            self._accepted.add(update.client)
            others = dict(context.memory.get("strange", {}))
            if update.round == context.round:
                has_another = update.client in self._sent_another_model
            else:
                unanswered = context.memory.get("unanswered", {})
                has_another = unanswered.get(update.client) == update.round
            if has_another:
                others[update.client] = update.round
            elif others.pop(update.client, None) is None:
                return
            context.keep(strange=others)

        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
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
                parts = parts_of(context.layout, self.hook.flat)
                payload = self._down.encode(change, parts, context.rng("download"))
                sent = self._down.decode(payload, parts)
                state = replace(state, weights=context.start + sent)
                if self.hook.feedback:
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
            """Return the payloads that bring the client up to date; None: send the model."""
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

    class Client(ClientSide["CodecHook"]):
        """Encodes updates, and brings the client's model up to date."""

        def __init__(self, hook: CodecHook) -> None:
            super().__init__(hook)
            self._up, self._down = hook.codecs()

        def receive(self, task: Task, context: ClientContext) -> Task:
            if self._down is None:
                return task
            parts = parts_of(context.layout, self.hook.flat)
            return receive_model(task, context, self._down, parts)

        def send(self, update: Update, context: ClientContext) -> Update:
            if self._up is None:
                return update
            parts, wanted = parts_of(context.layout, self.hook.flat), update.delta
            if self.hook.feedback and "residual" in context.memory:
                wanted = wanted + context.memory["residual"]
            if not np.isfinite(wanted).all():
                return update  # the server rejects it and says why
            payload = self._up.encode(wanted, parts, context.rng("upload"))
            if self.hook.feedback:
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
    payload = vector_in(context.slot, PAYLOAD, "payload", np.uint8)
    return replace(update, delta=codec.decode(payload, parts))


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
    missed = vector_in(context.slot, MISSED, "payload", np.uint8)
    lengths = vector_in(context.slot, LENGTHS, "lengths of the missed updates", np.int64)
    if lengths.sum() != missed.size:
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
