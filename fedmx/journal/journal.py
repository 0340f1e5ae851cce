"""The journal of a round: all its events, with their times, and its commands.

A round is a function of the state before it and of its journal. Vectors are kept by their hashes,
so the size of a journal is bounded by the number of events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from fedmx.errors import FedmxError
from fedmx.journal.chain import message_hash
from fedmx.protocol.messages import CODEC
from layers.logic import (
    Answer,
    ClientLost,
    Offer,
    Overhead,
    RoundReport,
    StateLost,
    TimerFired,
    Times,
    Traffic,
    Update,
    Verdict,
)
from layers.logic.record_size import recorded_bytes
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Begin,
    Cancel,
    Close,
    Command,
    Costs,
    Event,
    Joined,
    Left,
    ReportCosts,
    SendTask,
    SetTimer,
)
from layers.logic.round.patience import Patience
from layers.logic.round.validation import LONGEST_METRIC, MOST_METRICS

MEASURED = frozenset({"times"})
"""The questions whose answers are measured, so that they cannot be computed again."""


class JournalError(FedmxError):
    """A journal cannot be used, or a round does not follow it.

    Attributes:
        round: the round in question; None: the journal as a whole.
        client: the client whose update or task differs; None: no single client's.
    """

    def __init__(self, text: str, round: int | None = None, client: int | None = None) -> None:
        super().__init__(text)
        self.round, self.client = round, client


@dataclass(frozen=True)
class UpdateArrived:
    """An update that arrived.

    Attributes:
        round: the round of the task that it answers.
        client: number of the client.
        blake3: `message_hash` of the update; empty: no task had asked for it.
        rejected: why the server rejected it; None: it did not, or no task had asked for it.
    """

    round: int
    client: int
    blake3: str
    rejected: str | None = None


@dataclass(frozen=True)
class AnswerArrived:
    """An answer that arrived.

    Attributes:
        client: number of the client.
        blake3: `message_hash` of the answer; empty: it was measured.
        measured: the encoded answer if it was measured.
    """

    client: int
    blake3: str = ""
    measured: bytes = b""


Kept: TypeAlias = (
    UpdateArrived
    | AnswerArrived
    | Offer
    | ClientLost
    | StateLost
    | TimerFired
    | Joined
    | Left
    | Costs
)
"""An event as a journal keeps it."""


@dataclass(frozen=True)
class Entry:
    """One exchange of a round with its carrier.

    Attributes:
        commands: the commands, as their records.
        event: the event that followed.
        at_s: its time, in seconds (see `Carrier.exchange`).
    """

    commands: tuple[list[Any], ...]
    event: Kept
    at_s: float


@dataclass
class Journal:
    """The journal of one round.

    Attributes:
        round: number of the round, from 1.
        population: the clients that could be asked when the round was opened, with their numbers
            of samples; empty for a simulation, whose clients follow from the experiment.
        opened_s: virtual seconds of the run at which the round was opened; None: real time.
        excluded: the clients that the run has excluded when the round begins, with the reasons.
        patience: how long a client might be silent; None: any time.
        stepped_back: the records of the steps back after which the round was run.
        entries: the exchanges, in their order.
        updates: the hashes of the expected updates that arrived, by client and number of the task,
            then by pass.
    """

    round: int
    population: Mapping[int, int] = field(default_factory=dict)
    opened_s: float | None = None
    excluded: Mapping[Any, str] = field(default_factory=dict)
    patience: Patience | None = None
    stepped_back: tuple[Mapping[str, Any], ...] = ()
    entries: list[Entry] = field(default_factory=list)
    updates: dict[tuple[int, int], dict[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting: dict[int, int] = {}  # by client, the pass of the task that it has
        # By client and number of the task, the entry of its last expected update.
        self._expected: dict[tuple[int, int], int] = {}

    def append(self, at_s: float, event: Event, commands: Sequence[Command]) -> None:
        """Append an exchange; an update is hashed before the round handles it.

        Args:
            at_s: the time of the event.
            event: the event.
            commands: the commands that went out before it.
        """
        for command in commands:
            if isinstance(command, SendTask):
                self._waiting[command.task.client] = command.task.pass_number
            elif isinstance(command, Begin):
                self._waiting = {task.client: task.pass_number for task in command.late}
        self.entries.append(Entry(tuple(grouped(commands)), self._kept(event), at_s))

    def updates_of(self, client: int, task_round: int) -> tuple[str, ...]:
        """Return the hashes of the updates that answer a client's task, one for each pass."""
        return tuple(self.updates.get((client, task_round), {}).values())

    def conclude(self, report: RoundReport, stepped_back: Iterable[Mapping[str, Any]]) -> None:
        """Note which updates were rejected, and the steps back before the round."""
        self.stepped_back = tuple(stepped_back)
        for one in report.clients:
            # Later reports of a client concern updates that no task asked for.
            place = self._expected.pop((one.client, one.task_round), None)
            if one.status == "rejected" and place is not None:
                entry = self.entries[place]
                assert isinstance(entry.event, UpdateArrived)
                event = UpdateArrived(
                    entry.event.round, entry.event.client, entry.event.blake3, one.reason
                )
                self.entries[place] = Entry(entry.commands, event, entry.at_s)

    @property
    def accounts(self) -> Costs:
        """The cost of the round."""
        event = self.entries[-1].event
        assert isinstance(event, Costs)
        return event

    def _kept(self, event: Event) -> Kept:
        if isinstance(event, Answered):
            answer = event.answer
            if answer.question in MEASURED:
                return AnswerArrived(answer.client, measured=bytes(CODEC.encode(answer)))
            return AnswerArrived(answer.client, message_hash(answer))
        if isinstance(event, Update):
            if self._waiting.pop(event.client, None) is None:
                return UpdateArrived(event.round, event.client, "")
            blake3 = message_hash(event)
            task = event.client, event.round
            self.updates.setdefault(task, {})[event.pass_number] = blake3
            self._expected[task] = len(self.entries)
            return UpdateArrived(event.round, event.client, blake3)
        if isinstance(event, ClientLost):
            self._waiting.pop(event.client, None)
            self._expected.pop((event.client, event.round), None)
        return event

    # --- the line of journal.jsonl -----------------------------------------------------------

    def record(self, before: Mapping[int, int] | None) -> dict[str, Any]:
        """Return the round's line of journal.jsonl, without empty values.

        Args:
            before: the population of the round before, to which the record has the difference;
                None: the population is recorded whole.
        """
        record: dict[str, Any] = {
            "population": _difference(self.population, before),
            "opened_s": self.opened_s,
            "excluded": dict(self.excluded),
            "patience": None if self.patience is None else self.patience.record(),
            "stepped_back": list(self.stepped_back),
        }
        entries = [
            [entry.at_s, _record_of(entry.event, self.round), *entry.commands]
            for entry in self.entries
        ]
        kept = {name: one for name, one in record.items() if one}
        return {"round": self.round, **kept, "entries": entries}

    @classmethod
    def of(cls, record: Mapping[str, Any], before: Mapping[int, int] | None) -> Journal:
        """Return the journal that a record was made from.

        Raises:
            KeyError, TypeError, ValueError: it is no record of a journal, or the round before is
                needed and missing.
        """
        round = record["round"]
        return cls(
            round=round,
            population=_population(record.get("population", {}), before),
            opened_s=record.get("opened_s"),
            excluded=_by_client(record.get("excluded", {})),
            patience=Patience(**record["patience"]) if "patience" in record else None,
            stepped_back=tuple(record.get("stepped_back", ())),
            entries=[
                Entry(tuple(commands), _event_of(event, round), at_s)
                for at_s, event, *commands in record["entries"]
            ],
        )


def journals_of(records: Iterable[Mapping[str, Any]], source: str) -> dict[int, Journal]:
    """Return the journals of a run by round, up to the first missing one.

    Args:
        records: the lines of journal.jsonl.
        source: name of the file, for messages.

    Raises:
        JournalError: there is none of round 1, or a record is not understood.
    """
    found: dict[int, Journal] = {}
    before: Mapping[int, int] | None = None
    for record in records:
        if record.get("round") != len(found) + 1:
            break
        try:
            one = Journal.of(record, before)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise JournalError(
                f"{source}: the record of round {len(found) + 1} is not understood ({error}); "
                "use the version of fedmx that run.json names"
            ) from None
        found[one.round], before = one, one.population
    if not found:
        raise JournalError(f"{source}: there is no record of round 1; the run cannot be replayed")
    return found


def grouped(commands: Sequence[Command]) -> list[list[Any]]:
    """Return the records of commands; tasks, verdicts and cancellations in a row are one."""
    records: list[list[Any]] = []
    for command in commands:
        name, *values = record_of_command(command)
        if records and records[-1][0] == name and name in ("tasks", "verdicts", "cancel"):
            records[-1] += values
        else:
            records.append([name, *values])
    return records


def record_of_command(command: Command) -> list[Any]:
    """Return a command as a journal records it: its name, then its values."""
    match command:
        case SendTask(task):
            later = [task.pass_number] if task.pass_number > 1 else []
            return ["tasks", [task.client, task.last_accepted_round, *later]]
        case Verdict(client=client, granted=granted):
            return ["verdicts", [client, granted]]
        case Cancel(client, give_up):
            return ["cancel", [client, give_up]]
        case SetTimer(name, at_s):
            return ["timer", name, at_s]
        case Ask(question, clients):
            return ["ask", question.name, list(clients)]
        case Begin(asynchronous=True, late=late):
            return ["begin", "refills", len(late)]
        case Begin(late=late):
            return ["begin", *(task.client for task in late)]
        case Close():
            return ["close"]
        case ReportCosts():
            return ["account"]
    raise AssertionError(command)


TRACEBACK = "in clients.jsonl of the run that was replayed"
"""What a replay has in place of a traceback: the journal has none, so that it is stored once."""

_KINDS: Mapping[str, type[Kept]] = {
    "offer": Offer,
    "update": UpdateArrived,
    "answer": AnswerArrived,
    "lost": ClientLost,
    "memory lost": StateLost,
    "timer": TimerFired,
    "joined": Joined,
    "left": Left,
    "accounts": Costs,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def _record_of(event: Kept, round: int) -> dict[str, Any]:
    """Return an event in its form in the record of this round."""
    record: dict[str, Any] = {"event": _NAMES[type(event)]}
    if isinstance(event, UpdateArrived | Offer | ClientLost | StateLost) and event.round != round:
        record["round"] = event.round
    match event:
        case TimerFired(name):
            return {**record, "name": name}
        case Costs():
            return {**record, **_record_of_accounts(event)}
        case UpdateArrived(client=client, blake3=blake3, rejected=rejected):
            record |= {"client": client, "blake3": blake3}
            return record if rejected is None else {**record, "rejected": rejected}
        case AnswerArrived(client, blake3, measured):
            given = {"blake3": blake3} if blake3 else {"measured": measured.hex()}
            return {**record, "client": client, **given}
        case Offer():
            return record | {
                "client": event.client,
                "arrived_s": event.at_s,
                "samples": event.samples,
                "norm": _number(event.norm),
                "upload_s": _number(event.upload_s),
                "metrics": _bounded(event.metrics),
            }
        case ClientLost():
            record |= {"client": event.client, "reason": event.reason}
            record |= {"failed": True} if event.traceback else {}
            return record | {name: True for name in ("rejected", "ordered") if getattr(event, name)}
        case Joined(client, samples):
            return {**record, "client": client, "samples": samples}
        case _:
            return {**record, "client": event.client}


def _event_of(record: Mapping[str, Any], round: int) -> Kept:
    """Return the event that a record has.

    Raises:
        KeyError: a value is missing, or the event is unknown.
    """
    kind = _KINDS[record["event"]]
    if kind is TimerFired:
        return TimerFired(record["name"])
    if kind is Costs:
        return _accounts_of(record)
    client, of_round = record["client"], record.get("round", round)
    if kind is UpdateArrived:
        return UpdateArrived(of_round, client, record["blake3"], record.get("rejected"))
    if kind is AnswerArrived:
        return AnswerArrived(
            client, record.get("blake3", ""), bytes.fromhex(record.get("measured", ""))
        )
    if kind is Offer:
        return Offer(
            of_round,
            client,
            samples=record["samples"],
            norm=float(record["norm"]),
            upload_s=float(record["upload_s"]),
            metrics={name: float(value) for name, value in record["metrics"].items()},
            at_s=record["arrived_s"],
        )
    if kind is ClientLost:
        marks = {name: record[name] for name in ("rejected", "ordered") if name in record}
        marks |= {"traceback": TRACEBACK} if record.get("failed") else {}
        return ClientLost(of_round, client, record["reason"], **marks)
    if kind is StateLost:
        return StateLost(of_round, client)
    return Joined(client, record["samples"]) if kind is Joined else Left(client)


def _record_of_accounts(accounts: Costs) -> dict[str, Any]:
    clients: dict[int, dict[str, Any]] = {}
    for given in (accounts.traffic, accounts.times):
        for client, one in given.items():
            values = {name: value for name, value in vars(one).items() if value is not None}
            clients.setdefault(client, {}).update(values)
    overhead = {name: value for name, value in asdict(accounts.overhead).items() if value}
    record = {"waited_s": accounts.waited_s, "overhead": overhead}
    filled = {name: value for name, value in record.items() if value}
    return {"took_s": accounts.took_s, **filled, "clients": dict(sorted(clients.items()))}


def _accounts_of(record: Mapping[str, Any]) -> Costs:
    clients = _by_client(record.get("clients", {}))
    overhead = dict(record.get("overhead", {}))
    texts: dict[str, Any] = {
        name: tuple(overhead.pop(name, ()))
        for name in ("rejected_connections", "operator", "other_versions")
    }
    return Costs(
        took_s=record["took_s"],
        waited_s=record.get("waited_s", 0.0),
        traffic={one: _given(Traffic, of) for one, of in clients.items() if "up_bytes" in of},
        times={one: _given(Times, of) for one, of in clients.items() if "asked_s" in of},
        overhead=Overhead(**overhead, **texts),
    )


def answer_of(kept: AnswerArrived) -> Answer:
    """Return a measured answer."""
    answer = CODEC.decode(kept.measured)
    assert isinstance(answer, Answer)
    return answer


def _bounded(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Return the metrics as JSON has them; too many, or too long names, stay too many or too long.

    So an offer can write a bounded amount, and a replay refuses the same offers.
    """
    return {
        _cut(name, place): _number(value)
        for place, (name, value) in enumerate(islice(metrics.items(), MOST_METRICS + 1))
    }


def _cut(name: str, place: int) -> str:
    """Return a name, or in place of one that is too long the shortest that is."""
    return name if recorded_bytes(name) <= LONGEST_METRIC else f"{place:x<{LONGEST_METRIC + 1}}"


def _number(value: float) -> float | str:
    """Return a number as strict JSON can hold it; `float` restores it."""
    return value if math.isfinite(value) else str(value)


def _difference(now: Mapping[int, int], before: Mapping[int, int] | None) -> dict[str, Any]:
    """Return a population as the difference to the one before."""
    if before is None:
        return {"all": dict(now)} if now else {}
    left = [client for client in before if client not in now]
    came = {one: number for one, number in now.items() if before.get(one) != number}
    return {**({"left": left} if left else {}), **({"came": came} if came else {})}


def _population(change: Mapping[str, Any], before: Mapping[int, int] | None) -> dict[int, int]:
    """Return the population that `_difference` was given."""
    if "all" in change:
        return _by_client(change["all"])
    if before is None and change:
        raise ValueError("a difference to an unknown population")
    left = set(change.get("left", ()))
    kept = {one: number for one, number in (before or {}).items() if one not in left}
    return {**kept, **_by_client(change.get("came", {}))}


def _by_client(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(client): value for client, value in values.items()}


def _given(make: Any, values: Mapping[str, Any]) -> Any:
    """Return the dataclass `make` of those of its fields that `values` has."""
    names = make.__dataclass_fields__
    return make(**{name: value for name, value in values.items() if name in names})
