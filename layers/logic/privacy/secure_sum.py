"""Secure sums in a round: the server learns the sum of the clients' updates alone.

Source: Bonawitz et al. 2017 for up to 100 clients, Bell et al. 2020 (SecAgg+) for more. With noise,
Kairouz, Liu and Steinke 2021.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from annotated_types import Ge

from layers.logic.aggregators.mean import Mean
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.hook import (
    ClientContext,
    ClientSide,
    Hook,
    Phase,
    ServerContext,
    ServerSide,
)
from layers.logic.core.messages import EMPTY, Slot, Task, Update
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset
from layers.logic.core.privacy import Budget, DifferentialPrivacy, Mechanism, Seen
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError, Rejected
from layers.logic.privacy.central import Noise, check_delta, with_hook
from layers.logic.privacy.local import check_by_number
from layers.logic.secrets import Secret, SecretDraws
from layers.logic.secure_sum.graph import COMPLETE_UP_TO, LEAST_CLIENTS, Trust, degree_for
from layers.logic.secure_sum.keys import BLOCK_BYTES, SIGNATURE_BYTES, START
from layers.logic.secure_sum.noise import SharedNoise, out_of_steps
from layers.logic.secure_sum.opening import CannotOpen, Opening, accused
from layers.logic.secure_sum.peer import SEALED_BYTES, Peer
from layers.logic.secure_sum.roster import PUBLIC_BYTES, Roster, SumRefused
from layers.logic.secure_sum.shamir import SHARE_BYTES
from layers.logic.secure_sum.slots import by_client, listed, numbers_in, of_clients, rows_in
from layers.logic.secure_sum.whole_numbers import (
    VALUE_BITS,
    dequantised,
    packed,
    packed_bytes,
    quantised,
    unpacked,
    word_bits,
)
from layers.settings import Fraction, Positive

TIMES = "times"
"""The only question of a selector that is not about a client's data."""
MOST_PROOF_BYTES = 8192
"""Of one client: a certificate and a signature."""
KEPT = "secure sum"
"""The name of a client's end among what its process keeps."""
NOT_OPENED = "nobody was left to open the sum"
NO_KEYS = "sent no keys"
OTHER_TASK = "its masks are for another task than those of most clients"
REFUSED = "most of its neighbours refuse its keys, which its certificate has not signed"
UNREADABLE = "others cannot read the shares that it has sent, or it says so of theirs"


@dataclass(frozen=True)
class SecureSum(DifferentialPrivacy):
    """Secure aggregation: the server learns the sum of the updates, and nothing else of them.

    Each client adds masks to its update that cancel in the sum. It shares the secrets of its masks
    among its neighbours, so that the sum can be opened although clients are lost in the round: 5 %
    of more than 100 clients, and more of fewer. The same clients may be in league with the server.

    Values are whole numbers of 16 bits. So a sum is exact, whoever is lost, and a simulation, which
    has no masks, ends in the bits of a deployment.

    With `noise`, each client adds a share of discrete Gaussian noise to its whole numbers, so that
    the sum tells at most (epsilon, delta) about any client. In one of two runs a client sends only
    noise; who takes part is public. Epsilon counts each round for every client.

    Attributes:
        clip: C; a value of an update beyond C counts as C. With `noise`, the largest norm of a
            weighted update that counts in full.
        sums_clip: C of what else is in the sum, such as the variates of SCAFFOLD; null: `clip`.
        rounding: to the nearest whole number, or to one of both beside the value, so that the
            expectation is the value.
        min_clients: the fewest clients of a sum; with fewer, clients open none, and the round ends.
            They have the noise together, without 5 % of the round's clients, and one at least.
        server: what the server may do to learn more: ``"malicious"``, anything; ``"honest"``, look
            at all that it gets, which costs one question less and fewer neighbours.
        noise: sigma, as a multiple of C, of the smallest sum. null: no noise.
        delta: the probability up to which the claim may fail, with `noise`; below 1 / N.
        epsilon: the run ends before a round would exceed it; null: it is only reported.
    """

    name = "secure-sum"

    clip: Positive = 1.0
    sums_clip: Positive | None = None
    rounding: Literal["nearest", "stochastic"] = "nearest"
    min_clients: Annotated[int, Ge(LEAST_CLIENTS)] = LEAST_CLIENTS
    server: Trust = "malicious"
    noise: Noise | None = None
    delta: Fraction | None = None
    epsilon: Positive | None = None

    def __post_init__(self) -> None:
        if self.noise is None and (self.delta, self.epsilon) != (None, None):
            raise LogicError("delta and epsilon are of noise; set noise, too, or leave them out")
        if self.noise is not None and self.delta is None:
            raise LogicError("epsilon of the noise is for a delta; set delta")

    @property
    def _shared(self) -> SharedNoise | None:
        return None if self.noise is None else SharedNoise(self.noise, self.min_clients)

    @property
    def budget(self) -> Budget | None:
        return None if self.delta is None else Budget(self.delta, self.epsilon)

    @property
    def noise_of_clients(self) -> float | None:
        """The noise of the sum, if the server need not be trusted to add all clients to it."""
        return None if self._shared is None or self.server == "honest" else self._shared.accounted

    def mechanism(self, preset: Preset) -> Mechanism:
        return Mechanism(None if self._shared is None else self._shared.accounted, 1.0)

    def with_noise(self, preset: Preset, noise: float) -> Preset:
        """Return the parts as they are: clients know the noise."""
        return preset

    def applied(self, preset: Preset, clients: int) -> Preset:
        if self.delta is not None:
            check_delta(self.delta, clients)
        mean = preset.aggregator
        by_samples = not isinstance(mean, Mean) or mean.weights == "samples"
        sums = tuple((type(one).__name__, name) for one in preset.hooks for name in one.summed)
        clip = self.clip if self.sums_clip is None else self.sums_clip
        how = self.clip, self.rounding, self.server, by_samples, self.min_clients
        return with_hook(preset, MaskedSum(*how, sums, clip, self._shared))

    @property
    def seen(self) -> Seen:
        trusted = " if it follows the protocol" if self.server == "honest" else ""
        noisy, model = "", Seen.model
        if self.delta is not None:
            noisy = " with the clients' noise"
            model = (
                f"the models, which tell at most the recorded epsilon (delta {self.delta}) about "
                "any client, as the sums do"
            )
        return Seen(
            f"the sum of the updates of a round{noisy}{trusted}, who takes part, and each client's "
            "number of samples",
            model,
        )


class End(Protocol):
    """A client's end of a sum: `Peer`, whose methods it has, or `Unmasked` in a simulation."""

    public: bytes
    proof: bytes

    def share(self, roster: Roster) -> tuple[bytes, list[int]]:
        """Return what is sealed for each neighbour, and those that get nothing."""

    def receive(self, boxes: Mapping[int, bytes]) -> list[int]:
        """Take what neighbours have sealed; return those that it cannot read."""

    def masked(self, words: np.ndarray, task: bytes) -> np.ndarray:
        """Return the words with the masks of this client."""

    def confirm(self, survivors: Sequence[int]) -> bytes:
        """Return the signature of the list of survivors."""

    def open(self, survivors: Sequence[int], signatures: Mapping[int, bytes]) -> bytes:
        """Return a share of each neighbour."""


class Unmasked(End):
    """A simulated client's end: its messages are as long as those of `Peer`, and hide nothing.

    Args:
        clients: how many the sum has; None: that is not known yet.
    """

    public = bytes(PUBLIC_BYTES)
    proof = b""

    def __init__(self, clients: int | None = None) -> None:
        self._clients = clients

    def share(self, roster: Roster) -> tuple[bytes, list[int]]:
        return bytes(roster.degree.neighbours * SEALED_BYTES), []

    def receive(self, boxes: Mapping[int, bytes]) -> list[int]:
        return []

    def masked(self, words: np.ndarray, task: bytes) -> np.ndarray:
        return words

    def confirm(self, survivors: Sequence[int]) -> bytes:
        return bytes(SIGNATURE_BYTES)

    def open(self, survivors: Sequence[int], signatures: Mapping[int, bytes]) -> bytes:
        assert self._clients is not None
        return bytes(degree_for(self._clients).neighbours * SHARE_BYTES)


@dataclass(frozen=True)
class MaskedSum(Hook):
    """Clients send masked whole numbers, and the server opens their sum.

    The numbers are those of the weighted update, of the weighted change of the buffers, of the
    further vectors, and two for the number of samples.

    Attributes:
        clip: C.
        rounding: how a value becomes a whole number.
        trust: what the server may do.
        by_samples: whether updates are weighed by samples; otherwise all have the same weight.
        min_clients: the fewest clients of a sum.
        sums: what else is in the sum, each vector (d,) by the class of its hook and its name.
        sums_clip: C of these vectors.
        noise: the noise of the sum, of which each client adds a share; None: there is none.
    """

    clip: float
    rounding: str
    trust: Trust
    by_samples: bool
    min_clients: int = LEAST_CLIENTS
    sums: tuple[tuple[str, str], ...] = ()
    sums_clip: float = 1.0
    noise: SharedNoise | None = None

    provides = frozenset({Trait.ENCODES_UPDATE})

    @property
    def requires(self) -> frozenset[Need]:
        """The same task for all, which clients compare if the server may be malicious."""
        found = {Need.SAME_TASKS} if self.trust == "malicious" else set()
        return frozenset(found if self.noise is None else {*found, Need.HIDDEN})

    @property
    def follows(self) -> frozenset[Trait]:
        """What follows from its methods; what it encodes beside the update loses no more."""
        hidden = set() if self.noise is None else {Trait.SENDS_MORE}
        return super().follows - {Trait.LOSSY} - hidden

    def check(self, logic: Parts) -> None:
        """Check that epsilon counts all that clients tell, if they add noise."""
        if self.noise is None:
            return
        check_by_number(logic.selector)
        least = getattr(logic, "min_updates", 0)  # a preset has none
        if least > self.min_clients:
            raise LogicError(
                f"min_updates is {least}, but clients open a sum of {self.min_clients}: such a "
                "round would be run again, and its sum would not be counted; set min_clients in "
                f"privacy to {least}, or lower logic.min_updates"
            )

    def answered(self, question: str, classes: int, values: Slot, secret: Secret) -> Slot:
        """Return nothing that a client would tell of its data, whatever the server asks."""
        return values if question == TIMES and self.noise is None else {}

    def word_bits(self, clients: int) -> int:
        """Return the bits of a word in the sum of so many clients."""
        if self.noise is None:
            return word_bits(clients)
        if self.trust == "malicious" and clients > COMPLETE_UP_TO:
            raise SumRefused(
                f"a sum of {clients} clients, and a malicious server: with more than "
                f"{COMPLETE_UP_TO}, no client sees how many others have added their noise; select "
                "fewer clients, or set server to honest in privacy"
            )
        return self.noise.word_bits(clients)

    class Client(ClientSide["MaskedSum"]):
        def answer(self, phase: Phase, question: Slot, context: ClientContext) -> Slot:
            if phase == "cohort" and "public" not in question:
                end = self._begun(context)
                return {"public": end.public, "proof": end.proof}
            end, shared = self._end(context), context.round_memory
            if phase == "cohort":
                roster = _roster_in(question, context.round, self.hook.trust)
                sealed, refused = end.share(roster)
                shared["clients"], shared["most"] = len(roster.clients), roster.most
                return {"sealed": sealed, "refused": listed(refused)}
            survivors = numbers_in(question, "survivors")
            if self.hook.trust == "malicious" and "signers" not in question:
                return {"signature": end.confirm(survivors)}
            signatures = by_client(question, "signers", "signatures", SIGNATURE_BYTES)
            return {"told": end.open(survivors, signatures)}

        def _begun(self, context: ClientContext) -> End:
            if context.process is None:
                return Unmasked()
            assert context.client is not None
            identity, hook = context.process.identity, self.hook
            peer = Peer(context.client, context.round, hook.trust, identity, hook.min_clients)
            context.process.kept[KEPT] = peer
            return peer

        def _end(self, context: ClientContext) -> End:
            if context.process is None:
                return Unmasked(context.round_memory.get("clients"))
            peer: Peer | None = context.process.kept.get(KEPT)
            if peer is None or peer.round != context.round:
                raise SumRefused("this client has published no keys for this round")
            return peer

        def receive(self, task: Task, context: ClientContext) -> Task:
            sealed = by_client(context.slot, "senders", "sealed", SEALED_BYTES)
            self._unreadable = self._end(context).receive(sealed)
            self._buffers, self._slots = task.buffers, task.slots
            return task

        def send(self, update: Update, context: ClientContext) -> Update:
            clients, most = (context.round_memory[name] for name in ("clients", "most"))
            part = min(update.samples / max(int(most), 1), 1.0)
            delta = update.delta.astype(np.float64) * (part if self.hook.by_samples else 1.0)
            changed = (update.buffers.astype(np.float64) - self._buffers) * part
            slots = {key: dict(slot) for key, slot in update.slots.items()}
            further: Any = [_slot_in(slots, of).pop(name) for of, name in self.hook.sums]
            values = [np.concatenate([delta, changed])]
            values += [np.concatenate(further)] if further else []
            uniforms: list[np.ndarray | None] = [None, None]
            if self.hook.rounding == "stochastic":
                draws = context.rng("rounding")
                uniforms = [draws.random(one.size) for one in values]
            clips, noise = (self.hook.clip, self.hook.sums_clip), self.hook.noise
            if noise is None:
                whole = [
                    quantised(one, clip, uniforms=drawn)
                    for one, clip, drawn in zip(values, clips, uniforms, strict=False)
                ]
            else:  # which no further vectors go with
                secret = self._draws(context)
                whole = [noise.hidden(values[0], clips[0], int(clients), secret, uniforms[0])]
            samples = min(update.samples, (1 << 2 * VALUE_BITS) - 1)
            counted = np.array(divmod(samples, 1 << VALUE_BITS), np.uint32)
            task = START if self.hook.trust == "honest" else self._task(context)
            words = self._end(context).masked(np.concatenate([*whole, counted]), task)
            context.slot["words"] = packed(words, self.hook.word_bits(clients))
            context.slot |= {"unreadable": listed(self._unreadable), "task": task}
            return replace(update, delta=EMPTY, buffers=EMPTY, metrics={}, slots=slots)

        def _draws(self, context: ClientContext) -> SecretDraws:
            """Return the draws of the noise, new in each sum of a deployed client.

            Two sums of the same updates, with the same noise, would differ by that of one client.
            """
            if context.process is None:
                return context.secret("noise")
            peer: Peer = context.process.kept[KEPT]
            return peer.noise.draws("noise")

        def _task(self, context: ClientContext) -> bytes:
            """Return the digest of what is the same in the tasks of all clients of a round."""
            found = hashlib.sha256(repr(context.training).encode())
            shared = [context.start if not context.own.size else context.start[~context.own]]
            shared += [] if context.own.size else [self._buffers]
            for of, _ in self.hook.sums:
                for name, value in sorted(_slot_in(self._slots, of).items()):
                    found.update(name.encode())
                    shared.append(np.asarray(value))
            for array in shared:
                found.update(f"{array.dtype.str}{array.shape}".encode())
                found.update(np.ascontiguousarray(array).tobytes())
            return found.digest()[:BLOCK_BYTES]

    class Server(ServerSide["MaskedSum"]):
        asks = frozenset({"cohort", "returned"})

        def __init__(self, hook: MaskedSum) -> None:
            super().__init__(hook)
            self._roster: Roster | None = None
            self._masked = True
            self._out: dict[int, str] = {}  # the clients that are left out, each with the reason
            self._boxes: dict[int, dict[int, bytes]] = {}  # what is sealed, by sender and receiver
            self._unreadable: dict[int, set[int]] = {}
            self._tasks: dict[int, bytes] = {}
            self._signatures: dict[int, bytes] = {}
            self._opening: Opening | None = None
            self._secrets: dict[int, bytes] = {}
            self._failed = NOT_OPENED  # why the sum is not opened
            self._total = np.zeros(0, np.uint32)
            self._further = np.zeros((0, 0))
            self._buffers = 0

        def ask(self, phase: Phase, clients: Sequence[int], context: ServerContext) -> Slot | None:
            if phase == "cohort":
                return {} if self._roster is None else _slot_of(self._roster)
            if self._opening is None:
                self._out |= self._of_other_tasks(clients)
                self._opening = self._opening_of(clients)
            if len(self._opening.survivors) < self.hook.min_clients:
                self._failed = self._too_few
                return None
            try:
                self._opening.check(clients)
            except CannotOpen as failure:
                self._failed = str(failure)
                return None
            told: Slot = {"survivors": listed(sorted(self._opening.survivors))}
            if self._signatures or self.hook.trust == "honest":
                return {**told, **of_clients(self._signatures, "signers", "signatures")}
            return told

        def on_answers(
            self, phase: Phase, answers: Mapping[int, Slot], context: ServerContext
        ) -> bool | None:
            if phase == "cohort" and self._roster is None:
                self._take_keys(answers, context)
                return self._roster is not None
            if phase == "cohort":
                self._take_shares(answers)
                return False
            if self.hook.trust == "malicious" and not self._signatures:
                self._signatures = _texts(answers, "signature", lambda _: SIGNATURE_BYTES)
                return bool(self._signatures)
            self._take_opened(answers)
            return False

        def _take_keys(self, answers: Mapping[int, Slot], context: ServerContext) -> None:
            public = _texts(answers, "public", lambda _: PUBLIC_BYTES)
            self._masked = any(map(any, public.values()))  # the keys of a simulation are zero
            proofs: dict[int, bytes] = {}
            for client, key in public.items():
                proof = answers[client].get("proof")
                if any(key) != self._masked or not isinstance(proof, bytes):
                    continue
                if len(proof) <= MOST_PROOF_BYTES:
                    proofs[client] = proof
            self._out |= dict.fromkeys(answers.keys() - proofs.keys(), NO_KEYS)
            if len(proofs) >= self.hook.min_clients:
                try:
                    self.hook.word_bits(len(proofs))
                except SumRefused as refusal:
                    self._out |= dict.fromkeys(answers, str(refusal))
                    return
                most = max(context.samples.get(client, 1) for client in proofs)
                keys = {client: public[client] for client in proofs}
                self._roster = Roster(context.round, self.hook.trust, keys, proofs, most)

        def _take_shares(self, answers: Mapping[int, Slot]) -> None:
            refusals: Counter[int] = Counter()
            for client, slot in answers.items():
                around = self._around(client)
                try:
                    boxes = rows_in(slot, "sealed", [SEALED_BYTES] * len(around))
                    refused = set(numbers_in(slot, "refused")).intersection(around)
                except Rejected as rejection:
                    self._out.setdefault(client, str(rejection))
                    continue
                refusals.update(refused)
                sealed = zip(around, boxes, strict=True)
                self._boxes[client] = {one: box for one, box in sealed if one not in refused}
            for client, number in refusals.items():
                if 2 * number > len(self._around(client)):
                    self._out.setdefault(client, REFUSED)
            for client in self._out:
                self._boxes.pop(client, None)

        def _opening_of(self, clients: Sequence[int]) -> Opening:
            """Return what opens the sum of the words of these clients, but for some that lie."""
            assert self._roster is not None
            unreadable = {client: self._unreadable[client] for client in clients}
            self._out |= dict.fromkeys(accused(unreadable), UNREADABLE)
            edges = {
                client: [
                    one for one in self._exchanged(client) if client not in unreadable.get(one, ())
                ]
                for client in self._boxes
            }
            return Opening(self._roster, edges, frozenset(clients) - self._out.keys())

        def _of_other_tasks(self, clients: Sequence[int]) -> dict[int, str]:
            """Return those whose task was another one than that of most, with the reason."""
            tasks = Counter(self._tasks[client] for client in clients)
            ((usual, _),) = tasks.most_common(1)
            return dict.fromkeys((one for one in clients if self._tasks[one] != usual), OTHER_TASK)

        def _take_opened(self, answers: Mapping[int, Slot]) -> None:
            assert self._opening is not None
            told = _texts(answers, "told", lambda one: SHARE_BYTES * len(self._around(one)))
            try:
                if self._masked:
                    self._secrets = self._opening.secrets(told)
                self._opening.check(told)
            except CannotOpen as failure:
                self._failed = str(failure)
            else:
                self._failed = ""

        def _around(self, client: int) -> Sequence[int]:
            assert self._roster is not None
            return self._roster.neighbours.get(client, ())

        def _exchanged(self, client: int) -> list[int]:
            """Return the neighbours with which a client has exchanged shares."""
            boxes = self._boxes
            return [one for one in boxes.get(client, ()) if client in boxes.get(one, ())]

        def discard(
            self, phase: Phase, clients: Sequence[int], context: ServerContext
        ) -> Mapping[int, str]:
            found = {one: self._out[one] for one in clients if one in self._out}
            failed = self._failed if phase == "returned" else ""
            if phase == "cohort" and len(clients) - len(found) < self.hook.min_clients:
                failed = self._too_few
            return {**(dict.fromkeys(clients, failed) if failed else {}), **found}

        def send(self, task: Task, context: ServerContext) -> Task:
            self._buffers = task.buffers.size
            around = self._exchanged(task.client)
            boxes = {one: self._boxes[one][task.client] for one in around}
            context.slot |= of_clients(boxes, "senders", "sealed")
            return task

        def receive(self, update: Update, context: ServerContext) -> Update:
            words, size = context.slot.get("words"), packed_bytes(self._size(context), self._bits)
            form = (np.uint8, (size,))
            if not isinstance(words, np.ndarray) or (words.dtype, words.shape) != form:
                raise Rejected(f"words that are not {size} bytes")
            if update.metrics:
                raise Rejected("an update with metrics, which a sum does not hide")
            unreadable = set(numbers_in(context.slot, "unreadable"))
            if not unreadable.issubset(self._exchanged(update.client)):
                raise Rejected("an update that cannot read shares of clients that sent it none")
            self._unreadable[update.client] = unreadable
            (self._tasks[update.client],) = rows_in(context.slot, "task", [BLOCK_BYTES])
            return update

        @property
        def _too_few(self) -> str:
            return f"a sum needs {self.hook.min_clients} clients"

        def _size(self, context: ServerContext) -> int:
            return (1 + len(self.hook.sums)) * context.start.size + self._buffers + 2

        @property
        def _bits(self) -> int:
            assert self._roster is not None
            return self.hook.word_bits(len(self._roster.clients))

        def on_accepted(self, update: Update, context: ServerContext) -> None:
            words: Any = context.slot["words"]
            words = unpacked(words, self._size(context), self._bits)
            self._total = self._total + words if self._total.size else words

        def reveal(
            self, state: ServerState, context: ServerContext
        ) -> tuple[np.ndarray, np.ndarray]:
            assert self._opening is not None
            assert self._roster is not None
            task = self._tasks[min(self._opening.survivors)]
            opened = self._opening.unmasked(self._total, self._secrets, task)
            whole = (opened & np.uint32(2**self._bits - 1)).astype(np.int64)
            number, d = len(self._opening.survivors), state.weights.size
            end = d + self._buffers
            if self.hook.noise is None:
                values = dequantised(whole[:end], number, self.hook.clip)
            else:
                values = out_of_steps(whole[:end], self._bits, self.hook.clip)
            further = dequantised(whole[end:-2], number, self.hook.sums_clip)
            self._further = further.reshape(len(self.hook.sums), d)
            samples = int(whole[-2] << VALUE_BITS) + int(whole[-1])
            parts = max(samples, 1) / self._roster.most
            delta = values[:d] / (parts if self.hook.by_samples else number)
            buffers = state.buffers + values[d:] / parts
            return delta.astype(np.float32), buffers.astype(np.float32)

        @property
        def sums(self) -> Mapping[str, Mapping[str, np.ndarray]]:
            found: dict[str, dict[str, np.ndarray]] = {}
            for (of, name), total in zip(self.hook.sums, self._further, strict=True):
                found.setdefault(of, {})[name] = total
            return found


def _slot_in(slots: Mapping[str, Slot], of: str) -> Slot:
    """Return the slot of the hook of a class; empty: it has none."""
    return next((slot for key, slot in slots.items() if key.partition(":")[2] == of), {})


def _slot_of(roster: Roster) -> Slot:
    return {
        **of_clients(roster.public, "clients", "public"),
        "proofs": b"".join(roster.proofs.values()),
        "lengths": listed(map(len, roster.proofs.values())),
        "most": roster.most,
    }


def _roster_in(question: Slot, round: int, server: Trust) -> Roster:
    """Return the roster that the server tells.

    Raises:
        Rejected: it is none.
        SumRefused: no sum can have it.
    """
    public = by_client(question, "clients", "public", PUBLIC_BYTES)
    proofs = rows_in(question, "proofs", numbers_in(question, "lengths"))
    most = question.get("most")
    if len(proofs) != len(public) or not isinstance(most, int):
        raise Rejected("a question that does not tell all clients of a sum")
    return Roster(round, server, public, dict(zip(public, proofs, strict=True)), most)


def _texts(answers: Mapping[int, Slot], name: str, size: Callable[[int], int]) -> dict[int, bytes]:
    """Return the text of this name in each answer that has it, in the size for its client."""
    found = {}
    for client, slot in answers.items():
        with suppress(Rejected):
            (found[client],) = rows_in(slot, name, [size(client)])
    return found
