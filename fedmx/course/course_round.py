"""The course of one deployed round: what its clients told the server, in which order, and when.

A round is a function of the state before it and of what its clients tell. So this, together with
the updates, which a simulation makes again, is enough to have the same round once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fedmx.course.course_event import CourseEvent
from layers.logic import Times, Traffic


@dataclass(frozen=True)
class TaskSent:
    """A task that was sent, from the model of the round before.

    Attributes:
        client: number of the client.
        last_accepted_round: the round after which it takes its memory; 0: it begins without one.
        pass_number: the pass of its lane, from 1.
    """

    client: int
    last_accepted_round: int
    pass_number: int = 1


@dataclass(frozen=True)
class Asked:
    """A question that was asked.

    Attributes:
        question: its name.
        sha256: by client, in order of the answers, the hash of each answer that can be made again.
        answers: by client, the encoded answers of which that is not so: measured times.
        unanswered: the clients that did not answer.
    """

    question: str
    sha256: Mapping[int, str] = field(default_factory=dict)
    answers: Mapping[int, bytes] = field(default_factory=dict)
    unanswered: tuple[int, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return it as its place in a round's record has it."""
        record: dict[str, Any] = {"question": self.question}
        if self.sha256:
            record["sha256"] = dict(self.sha256)
        if self.answers:
            record["answers"] = {one: answer.hex() for one, answer in self.answers.items()}
        if self.unanswered:
            record["unanswered"] = list(self.unanswered)
        return record

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Asked:
        """Return what `record` was made from."""
        return cls(
            record["question"],
            _by_client(record.get("sha256", {})),
            {int(one): bytes.fromhex(text) for one, text in record.get("answers", {}).items()},
            tuple(record.get("unanswered", ())),
        )


@dataclass(frozen=True)
class CourseRound:
    """The course of one round.

    Attributes:
        round: number of the round, from 1.
        populations: who could be asked, with the numbers of samples, each time that the server
            looked; the last one holds for all later looks.
        excluded: the clients that the run has excluded when the round begins, with the reasons.
        stepped_back: the records of the steps back after which the round was run.
        asked: the questions, in their order.
        tasks: the tasks, in the order of sending.
        events: the events, in their order.
        verdicts: each verdict as (client, granted), in the order of sending.
        traffic: bytes of messages by client.
        times: the times by client.
        took_s: duration of the round in seconds.
        overhead: the cost besides messages: the fields of `fedmx.server.clients.Overhead`.
    """

    round: int
    populations: tuple[Mapping[int, int], ...]
    tasks: tuple[TaskSent, ...] = ()
    events: tuple[CourseEvent, ...] = ()
    asked: tuple[Asked, ...] = ()
    verdicts: tuple[tuple[int, bool], ...] = ()
    traffic: Mapping[int, Traffic] = field(default_factory=dict)
    times: Mapping[int, Times] = field(default_factory=dict)
    took_s: float = 0.0
    overhead: Mapping[str, Any] = field(default_factory=dict)
    excluded: Mapping[Any, str] = field(default_factory=dict)
    stepped_back: tuple[Mapping[str, Any], ...] = ()

    def record(self, before: Mapping[int, int] | None) -> dict[str, Any]:
        """Return the round's line of course.jsonl; what is empty is left out.

        Args:
            before: the last population of the round before, to which the record has the difference;
                None: the population is recorded whole.
        """
        tasks = [
            [one.client, one.last_accepted_round, *([one.pass_number] * (one.pass_number > 1))]
            for one in self.tasks
        ]
        record: dict[str, Any] = {
            "population": list(_changes(self.populations, before)),
            "excluded": dict(self.excluded),
            "stepped_back": list(self.stepped_back),
            "asked": [one.record() for one in self.asked],
            "tasks": tasks,
            "events": [one.record(self.round) for one in self.events],
            "verdicts": [[client, granted] for client, granted in self.verdicts],
            "clients": self._clients(),
            "overhead": {name: value for name, value in self.overhead.items() if value},
        }
        filled = {name: value for name, value in record.items() if value}
        return {"round": self.round, **filled, "took_s": self.took_s}

    @classmethod
    def of(cls, record: Mapping[str, Any], before: Mapping[int, int] | None) -> CourseRound:
        """Return the round that a record was made from.

        Raises:
            KeyError, TypeError, ValueError: it is no record of a course, or the round before is
                needed and missing.
        """
        round, clients = record["round"], _by_client(record.get("clients", {}))
        times = {client: _given(Times, one) for client, one in clients.items() if "asked_s" in one}
        traffic = {
            client: _given(Traffic, one) for client, one in clients.items() if "up_bytes" in one
        }
        return cls(
            round=round,
            populations=tuple(_populations(record.get("population", ()), before)),
            tasks=tuple(TaskSent(*one) for one in record.get("tasks", ())),
            events=tuple(CourseEvent.of(one, round) for one in record.get("events", ())),
            asked=tuple(Asked.of(one) for one in record.get("asked", ())),
            verdicts=tuple((client, granted) for client, granted in record.get("verdicts", ())),
            traffic=traffic,
            times=times,
            took_s=record["took_s"],
            overhead=record.get("overhead", {}),
            excluded=_by_client(record.get("excluded", {})),
            stepped_back=tuple(record.get("stepped_back", ())),
        )

    def _clients(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for given in (self.traffic, self.times):
            for client, one in given.items():
                values = {name: value for name, value in asdict(one).items() if value is not None}
                found.setdefault(client, {}).update(values)
        return dict(sorted(found.items()))


def _changes(
    populations: Iterable[Mapping[int, int]], before: Mapping[int, int] | None
) -> Iterable[dict[str, Any]]:
    """Return each population as the difference to the one before, up to the last difference."""
    changes: list[dict[str, Any]] = []
    for now in populations:
        if before is None:
            changes.append({"all": dict(now)})
        else:
            left = [client for client in before if client not in now]
            came = {one: number for one, number in now.items() if before.get(one) != number}
            changes.append({**({"left": left} if left else {}), **({"came": came} if came else {})})
        before = now
    while changes and not changes[-1]:
        changes.pop()
    return changes


def _populations(
    changes: Iterable[Mapping[str, Any]], before: Mapping[int, int] | None
) -> Iterable[Mapping[int, int]]:
    """Return the populations that `_changes` was given, up to the last difference."""
    found: list[Mapping[int, int]] = []
    for change in changes:
        if "all" in change:
            before = _by_client(change["all"])
        elif before is None:
            raise ValueError("a difference to an unknown population")
        elif change:
            left = set(change.get("left", ()))
            kept = {one: number for one, number in before.items() if one not in left}
            before = {**kept, **_by_client(change.get("came", {}))}
        found.append(before)
    if before is None:
        raise ValueError("a difference to an unknown population")
    return found or [before]


def _by_client(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(client): value for client, value in values.items()}


def _given(make: Any, values: Mapping[str, Any]) -> Any:
    """Return the dataclass `make` of those of its fields that `values` has."""
    names = make.__dataclass_fields__
    return make(**{name: value for name, value in values.items() if name in names})
