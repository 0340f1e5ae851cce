"""Replay: a recorded run is run again, whole, one round of it, or one client in a round."""

from __future__ import annotations

import functools
import pdb
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.components.text import unknown
from fedmx.errors import FedmxError
from fedmx.history.recorded import RecordedRun, rerun, run_part
from fedmx.history.records import CheckedRecords, ClientRecords
from fedmx.history.values import VectorNumbers, arrays_of, flat, payload_bytes, vector_of
from fedmx.journal.chain import CHAIN, chained, message_hash, updates_of
from fedmx.protocol.messages import CODEC
from fedmx.run import RunError, RunFolder
from fedmx.server.round import Round
from layers.compute.bits import one_blas_thread
from layers.compute.data.datasets import Files
from layers.logic import (
    ClientReport,
    ClientSide,
    Logic,
    ServerSide,
    Task,
    Update,
)
from layers.logic.core.declaration import Trait, declared
from layers.logic.round.pipeline import End
from layers.network import wire_size

SERIAL = ("executor=serial",)
"""The override with which the hooks of the clients work in this process."""


@dataclass(frozen=True)
class ReplayReport:
    """What came of a replay.

    Attributes:
        run: the run folder's name.
        rounds: the rounds that were run again, beside their records; none for a client's part.
        parts: a client's part in a round, one for each of its tasks; none if whole rounds were
            replayed.
    """

    run: str
    rounds: tuple[ReplayedRound, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def same(self) -> bool | None:
        """Whether all is as recorded; None: of this part, nothing is recorded to compare with."""
        return all_same(self.parts) if self.parts else all(one.same for one in self.rounds)

    def record(self) -> dict[str, Any]:
        """Return the report as plain values."""
        parts = {} if not self.parts else {"parts": [one.record_of_it() for one in self.parts]}
        rounds = {} if not self.rounds else {"rounds": [one.record() for one in self.rounds]}
        return {"run": self.run, "same": self.same, **rounds, **parts}


def replay(
    run: str | Path | RunFolder | RecordedRun,
    round: int | None = None,
    client: int | None = None,
    *,
    modules: Collection[str] | None = (),
    overrides: Sequence[str] = (),
    files: Files | None = None,
    stop_at: str | None = None,
    on_round: Callable[[ReplayedRound], None] | None = None,
) -> ReplayReport:
    """Run a recorded run again, and compare its hashes with the records.

    ::

        report = replay("runs/quickstart-20260131-093000", round=37, client=12)
        for part in report.parts:  # one, unless rounds do not wait
            for step in part.steps:
                print(step.end, step.step, step.numbers)

    Args:
        run: the run folder, or a run that is open.
        round: the only round to run again, from the nearest checkpoint before it; None: all, from
            the beginning.
        client: the only client of the round to look at, step by step; None: whole rounds.
        modules: the modules whose code the experiment may name; None: all.
        overrides: ``PATH=VALUE`` texts that do not change the result, such as the executor.
        files: where data sets are; None: where the environment says.
        stop_at: a hook's method at which the debugger stops, as ``module:Class.method``, in the
            given round, for the given client or for all.
        on_round: is called with each round that was run again.

    Raises:
        RunError: the round or client does not exist, or the run cannot be repeated here.
        ExperimentError: its experiment cannot be built here, or names code that is not allowed.
        FedmxError: no hook has the method to stop at.
    """
    if round is None and (client is not None or stop_at is not None):
        what = "a client's part" if stop_at is None else "to stop in the debugger"
        raise RunError(f"{what} needs a round; give one")
    if not isinstance(run, RecordedRun):
        serial = SERIAL if client is not None or stop_at is not None else ()
        overrides = (*overrides, *serial)
        run = RecordedRun.open(run, modules=modules, overrides=overrides, files=files)
    name = run.folder.name
    if round is not None and client is not None:
        records = run.records
        records.check_participants(round, records.clients(round, round), [client])
        return ReplayReport(name, parts=replay_parts(run, round, client, stop_at=stop_at))
    rounds: dict[int, ReplayedRound] = {}  # the last one of each number, after steps back
    with stopping_at(run.assembly.logic, stop_at, round or 0):
        for one in replayed_rounds(run, round):
            rounds[one.round] = one
            if on_round is not None:
                on_round(one)
    return ReplayReport(name, tuple(rounds.values()))


@dataclass(frozen=True)
class ReplayedRound:
    """A round that was run again, beside its record.

    Attributes:
        round: number of the round.
        model_sha256: the SHA-256 (hex) of the model after it, here.
        recorded_model_sha256: the same, as it was recorded.
        chain: the chain's link, made here of the recorded one before it.
        recorded_chain: the recorded link.
        record_holds: whether that is the link of the record; otherwise the record was changed.
        updates: how many updates counted here.
        differing: the clients whose updates have other hashes, or counted in one of the two only.
        masked: whether updates were masked, so that only their sum can be compared.
    """

    round: int
    model_sha256: str
    recorded_model_sha256: str
    chain: str
    recorded_chain: str
    record_holds: bool
    updates: int
    differing: tuple[int, ...]
    masked: bool = False

    @property
    def same(self) -> bool:
        """Whether the round is the recorded one: its record, its updates and its model."""
        return self.record_holds and self.chain == self.recorded_chain and not self.differing

    def record(self) -> dict[str, Any]:
        """Return the round as plain values."""
        found = {**asdict(self), "differing": list(self.differing), "same": self.same}
        return found if self.masked else {key: found[key] for key in found if key != "masked"}


def replayed_rounds(run: RecordedRun, round: int | None = None) -> Iterator[ReplayedRound]:
    """Run a recorded run again, and yield its rounds beside their records.

    A run that stepped back runs some rounds twice; its record is the later one.

    Args:
        run: the run.
        round: the only round to run again, from the nearest checkpoint before it; None: all rounds,
            from the beginning, or from where a fork goes its own way.

    Raises:
        RunError: the round does not exist, its records have no hashes, or it cannot be run here.
    """
    records = run.records
    last = records.last if round is None else round
    if last not in records.rounds:
        raise records.error(f"round {last} is not recorded; give another one")
    first = round or run.folder.forked_after + 1
    if first > 1:
        records.round(first - 1)  # its link comes before the first one
    clients = records.clients(first, last)
    for number in range(first, last + 1):
        records.hashed(number)
        records.check_participants(number, clients)
    with rerun(run, first) as server:
        masked = run.deployed and any(Trait.MASKED in declared(one) for one in server.logic.hooks)
        for one in server:
            yield _compared(one, records, clients, masked)
            if one.round >= last:
                return


def _compared(
    round: Round, records: CheckedRecords, clients: ClientRecords, masked: bool
) -> ReplayedRound:
    number, record = round.round, records.rounds[round.round]
    found = {client: tuple(sent) for client, sent in round.update_blake3.items()}
    updates = updates_of(clients.get(number, ())).get(number, {})
    if masked:  # the secrets of the masks are nowhere
        found = {client: updates.get(client, hashes) for client, hashes in found.items()}
    sent = [one for hashes in found.values() for one in hashes]
    return ReplayedRound(
        round=number,
        model_sha256=round.model_sha256,
        recorded_model_sha256=record["model_sha256"],
        chain=chained(records.link_before(number), round.record(), sent, round.model_sha256),
        recorded_chain=record[CHAIN],
        record_holds=records.link(number, clients) == record[CHAIN],
        updates=len(round.participants),
        differing=tuple(
            client
            for client in sorted({*found, *updates})
            if found.get(client) != updates.get(client)
        ),
        masked=masked,
    )


@dataclass(frozen=True)
class Part:
    """One client's part in one round, replayed: a task, and its update.

    Where rounds do not wait, a client may have several parts in a round. A part has only the steps
    that belong to the round: of a task that an earlier round sent, those from the client on; of a
    task whose update a later round gets, those on the server.

    Attributes:
        round: number of the round.
        client: number of the client.
        steps: its task and its update after each step, in order.
        fate: the report on it here.
        record: its record in the run; empty: there is none.
    """

    round: int
    client: int
    steps: tuple[Step, ...]
    fate: ClientReport
    record: Mapping[str, Any]

    @property
    def version(self) -> int | None:
        """The version of the model that its task started from; None: rounds wait."""
        return self.fate.version

    @property
    def blake3(self) -> tuple[str, ...]:
        """The BLAKE3 hashes (hex) of its updates here, one for each pass."""
        sent = {one.pass_number: one.blake3 for one in self.steps if one.step == "message"}
        return tuple(sent.values())

    @property
    def recorded_blake3(self) -> tuple[str, ...] | None:
        """Those of the record; None: the run recorded none, or its update did not count."""
        return tuple(self.record.get("update_blake3", ())) or None

    def record_of_it(self) -> dict[str, Any]:
        """Return the part as plain values."""
        return {
            "round": self.round,
            "client": self.client,
            **({} if self.version is None else {"version": self.version}),
            "steps": [one.record() for one in self.steps],
            "fate": self.fate.status,
            "reason": self.fate.reason,
            "recorded_fate": self.record.get("status"),
            "recorded_reason": self.record.get("reason", ""),
            "update_blake3": list(self.blake3),
            "recorded_update_blake3": list(self.recorded_blake3 or ()),
        }

    @property
    def same(self) -> bool | None:
        """Whether the updates are the recorded ones; None: none are recorded."""
        recorded = self.recorded_blake3
        return None if recorded is None else recorded == self.blake3


def all_same(parts: Sequence[Part]) -> bool | None:
    """Return whether all recorded updates of parts are the same here; None: none is recorded."""
    found = {part.same for part in parts}
    return False if False in found else (True if True in found else None)


def replay_parts(
    run: RecordedRun,
    round: int,
    client: int,
    *,
    keep: bool = False,
    stop_at: str | None = None,
) -> tuple[Part, ...]:
    """Replay one client's part in one round, without the other clients where that is possible.

    The clients before it in its lane work too. All clients work if they make offers, or if the
    round does not wait.

    Returns:
        The parts in the order of their tasks: one, unless rounds do not wait.

    Args:
        run: the run; its executor is serial, so that the hooks work in this process.
        round: number of the round.
        client: number of the client.
        keep: whether the steps keep all arrays.
        stop_at: a hook's method to stop at in the debugger, as ``module:Class.method``.

    Raises:
        RunError: the round or the client's part in it does not exist, or cannot be run again here.
    """
    if run.experiment.executor.name != "serial":
        raise RunError("a client's part is replayed in this process; use executor=serial")
    trace = PartTrace(client, keep)
    with (
        stopping_at(run.assembly.logic, stop_at, round, client),
        rerun(run, round) as server,
        one_blas_thread(),
    ):
        reports = run_part(server, client, trace)
    records = (one for one in run.folder.clients(round) if one.get("client") == client)
    return tuple(
        Part(round, client, tuple(trace.steps.get(one.task_round, ())), one, next(records, {}))
        for one in reports
    )


@dataclass(frozen=True, eq=False)
class Step:
    """A task or an update as it left one step.

    Attributes:
        end: server or client.
        step: the hook's class and method, as in ``Stc.send``, or a place between hooks: start,
            task, training, message or decoded.
        pass_number: the pass of the lane, from 1.
        numbers: of the vector that it carries.
        bytes: of its arrays, without the slots that were decoded; of a task or a message, as
            encoded for the wire.
        notes: of a training: loss, steps and samples.
        blake3: of a message, the BLAKE3 hash (hex) of its encoding; else empty.
        arrays: everything in it, by name, if it was asked for; the memory of a hook's half is under
            ``memory``.
    """

    end: End
    step: str
    pass_number: int
    numbers: VectorNumbers
    bytes: int
    notes: Mapping[str, float] = field(default_factory=dict)
    blake3: str = ""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the step as plain values, without its arrays."""
        return {
            "end": self.end,
            "step": self.step,
            "pass": self.pass_number,
            **asdict(self.numbers),
            "bytes": self.bytes,
            **({"notes": dict(self.notes)} if self.notes else {}),
            **({"blake3": self.blake3} if self.blake3 else {}),
        }


class PartTrace:
    """A `Trace` of one client's tasks in the round under way.

    A task of an earlier round that it still works on is one of them.

    Args:
        client: number of the client.
        keep: whether the steps keep copies of all arrays.

    Attributes:
        steps: by task (see `Task.round`), its steps until now, in order.
    """

    def __init__(self, client: int, keep: bool = False) -> None:
        self._client = client
        self._keep = keep
        self.steps: dict[int, list[Step]] = {}

    def append(
        self, end: End, step: str, message: Task | Update, memory: Mapping[str, Any] | None = None
    ) -> None:
        """Append a task or an update of the client."""
        if message.client != self._client:
            return
        notes: dict[str, float] = {}
        if step == "training" and isinstance(message, Update):
            notes = {**message.metrics, "steps": message.steps, "samples": message.samples}
        encoded = step in ("task", "message")
        decoded = step == "decoded" or step.endswith(".receive")
        arrays: dict[str, np.ndarray] = {}
        if self._keep:
            hook = step.partition(".")[0]
            kept = {**arrays_of(message), **flat(memory or {}, f"memory of {hook}")}
            arrays = {
                name: np.array(value)
                for name, value in kept.items()
                if isinstance(value, np.ndarray | np.generic | int | float)
            }
        self.steps.setdefault(message.round, []).append(
            Step(
                end,
                step,
                message.pass_number,
                VectorNumbers.of(vector_of(message)),
                wire_size(CODEC.encode(message).size)
                if encoded
                else payload_bytes(message, decoded),
                notes,
                message_hash(message) if step == "message" else "",
                arrays,
            )
        )


METHODS: Mapping[End, tuple[str, ...]] = {
    "client": ("receive", "samples", "gradient", "send"),
    "server": ("send", "receive", "on_accepted", "conclude"),
}
"""The methods of each side of a hook at which a replay can stop."""


@contextmanager
def stopping_at(
    logic: Logic, name: str | None, round: int, client: int | None = None
) -> Iterator[None]:
    """Let the debugger stop at a hook's method in one round, in the `with` statement.

    Args:
        logic: the logic with the hooks.
        name: the method, as ``module:Class.method`` or ``Class.method``; the class is that of a
            side of the hook, or of the hook itself. None: the debugger does not stop.
        round: number of the round.
        client: number of the client; None: any client.

    Raises:
        FedmxError: no hook of the experiment has such a method; the text lists those there are.
    """
    if name is None:
        yield
        return
    places: dict[str, set[tuple[type, str]]] = {}
    own: list[str] = []
    for side, hook, method in _methods(logic):
        fedmx_own = side.__module__.startswith("layers.")
        own.append(f"{hook.__qualname__ if fedmx_own else _name_of(side)}.{method}")
        for one in (side, hook):
            for spelling in (_name_of(one), one.__qualname__):
                places.setdefault(f"{spelling}.{method}", set()).add((side, method))
    if name not in places:
        text = unknown("method of a hook", name, [*dict.fromkeys(own)])
        raise FedmxError(f"--break {name}: {text}" if own else f"--break {name}: no hooks")
    before = [(side, method, vars(side).get(method)) for side, method in places[name]]
    for side, method, _ in before:
        setattr(side, method, _stopping(getattr(side, method), round, client))
    try:
        yield
    finally:
        for side, method, function in before:
            if function is None:
                delattr(side, method)
            else:
                setattr(side, method, function)


def _stopping(function: Callable[..., Any], round: int, client: int | None) -> Callable[..., Any]:
    """Return a method that stops in the debugger in one round, for one client or for all.

    It raises KeyboardInterrupt when the user has left the debugger.
    """

    @functools.wraps(function)
    def stops(*arguments: Any) -> Any:
        context = arguments[-1]
        if context.round != round or (
            None not in (client, context.client) and (context.client != client)
        ):
            return function(*arguments)
        debugger = _Debugger(nosigint=True)
        returned = debugger.runcall(function, *arguments)
        if debugger.left:
            raise KeyboardInterrupt
        return returned

    return stops


class _Debugger(pdb.Pdb):
    """Python's debugger, which says whether its user has left it."""

    left = False

    def set_quit(self) -> None:
        self.left = True
        super().set_quit()


def _methods(logic: Logic) -> Iterator[tuple[type, type, str]]:
    """Yield each method that a side of a hook defines: class of the side, of the hook, and name."""
    for hook in logic.hooks:
        sides: tuple[tuple[End, ClientSide | ServerSide, type], ...] = (
            ("server", hook.server(), ServerSide),
            ("client", hook.client(), ClientSide),
        )
        for end, side, plain in sides:
            for method in METHODS[end]:
                if getattr(type(side), method) is not getattr(plain, method):
                    yield type(side), type(hook), method


def _name_of(found: type) -> str:
    return f"{found.__module__}:{found.__qualname__}"
