"""The times of each client in one round, from a run's records: the rows of a Gantt chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fedmx.report.records.participation import STATUSES
from fedmx.report.records.quantities import finite
from fedmx.report.records.summary import RunSummary
from fedmx.run import RunError, RunFolder

MAX_ROWS = 60
ASKED = "asked_s"
EVENTS = (ASKED, "trained_s", "decided_s", "sending_s", "ended_s")
_DEADLINES = ("clock.deadline_s", "network.round_deadline_s")

Kind = Literal["train", "verdict", "channel", "send", "work"]
"""Training, waiting for a verdict or for the channel, sending; ``work`` is training and sending if
the moment between them is not recorded."""


class Segment(NamedTuple):
    """What a client did from one moment to another, in seconds since the round began."""

    kind: Kind
    begin_s: float
    end_s: float


class RecordedEvents(NamedTuple):
    """Which events the records of a round have, of at least one client.

    Without offers, a real server does not know when training ended and sending began.

    Attributes:
        virtual: whether time is virtual; then all events are recorded.
        training: whether ends of training are recorded.
        verdicts: whether verdicts are recorded.
    """

    virtual: bool
    training: bool
    verdicts: bool


@dataclass(frozen=True)
class Row:
    """One client's times.

    Attributes:
        client: its id.
        status: at its end: accepted, rejected, declined or lost.
        segments: one after the other.
        end_s: seconds since the round began.
    """

    client: int
    status: str
    segments: tuple[Segment, ...]
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """The times of one round.

    Attributes:
        round: from 1.
        rows: in the order of the plan, at most `MAX_ROWS`.
        more: how many other clients had a task.
        without_task: how many clients of the plan never had one.
        duration_s: by the clock; None for a round that failed.
        deadline_s: of the round; None: it had none.
        virtual: whether time is virtual.
        one_machine: whether the times are those of a simulation without simulated devices.
        median: whether the round was chosen because its duration is the median of all.
    """

    round: int
    rows: Sequence[Row]
    more: int
    without_task: int
    duration_s: float | None
    deadline_s: float | None
    virtual: bool
    one_machine: bool
    median: bool


def timeline_of(run: RunFolder, summary: RunSummary, round: int | None = None) -> Timeline | None:
    """Return the times of a round.

    Args:
        run: the run.
        summary: its figures.
        round: the round; None: one of median duration.

    Returns:
        The times, or None if no round was given and the run has no times.

    Raises:
        RunError: there is no such round, or it has no times.
    """
    chosen = _median_round(summary) if round is None else round
    if chosen is None:
        return None
    records = list(run.clients(chosen))
    point = next((p for p in summary.points if p.round == chosen), None)
    if round is not None and point is None and not records:
        last = summary.points[-1].round if summary.points else 0
        raise RunError(f"{run.path}: there is no round {round}; the run has {last}, counted from 1")
    duration_s = point.round_s if point else None
    asked = [
        r for r in records if isinstance(r.get("client"), int) and _seconds(r, ASKED) is not None
    ]
    if not asked:
        if round is None:
            return None
        raise RunError(f"{run.path}: no times of clients were recorded in round {round}")
    last_s = max(t for one in asked for key in EVENTS if (t := _seconds(one, key)) is not None)
    recorded = RecordedEvents(
        virtual=summary.virtual,
        training=any(_seconds(one, "trained_s") is not None for one in asked),
        verdicts=any(_seconds(one, "decided_s") is not None for one in asked),
    )
    end_s = last_s if duration_s is None else duration_s
    rows = [_row(one, end_s, recorded) for one in _evenly_by_status(asked)]
    one_machine = not summary.virtual and summary.facts.get("mode") == "simulation"
    # A simulation without devices has no deadline.
    paths = () if one_machine else _DEADLINES
    deadlines = (finite(summary.settings.get(path)) for path in paths)
    return Timeline(
        round=chosen,
        rows=rows,
        more=len(asked) - len(rows),
        # A client that is not in the plan has a record only if its update was rejected.
        without_task=sum(
            1 for r in records if _seconds(r, ASKED) is None and r.get("status") != "rejected"
        ),
        duration_s=duration_s,
        deadline_s=next((deadline for deadline in deadlines if deadline is not None), None),
        virtual=summary.virtual,
        one_machine=one_machine,
        median=round is None,
    )


def _median_round(summary: RunSummary) -> int | None:
    """Return the last round whose duration is the median, or None."""
    times = sorted(p.round_s for p in summary.points if p.round_s is not None)
    if not times:
        return None
    median = times[(len(times) - 1) // 2]
    return next(p.round for p in reversed(summary.points) if p.round_s == median)


def _evenly_by_status(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return at most `MAX_ROWS` records, in their order, as evenly as possible from each status."""
    seen: Counter[str] = Counter()
    ranks = []
    for place, record in enumerate(records):
        status = str(record.get("status"))
        ranks.append((seen[status], place))
        seen[status] += 1
    return [records[place] for place in sorted(place for _, place in sorted(ranks)[:MAX_ROWS])]


def _row(record: Mapping[str, Any], round_end_s: float, recorded: RecordedEvents) -> Row:
    """Return one client's row; an unfinished client ends with the round."""
    asked, trained, decided, sending, ended = (_seconds(record, key) for key in EVENTS)
    assert asked is not None
    status = str(record.get("status"))
    end = max(asked, round_end_s if ended is None else ended)
    arrived = status in ("accepted", "rejected")
    steps: list[tuple[Kind, float | None]]
    if trained is None:
        cut_short = not arrived and (recorded.virtual or recorded.training)
        steps = [("train" if cut_short else "work", end)]
    else:
        steps = [("train", trained), ("verdict", decided), ("channel", sending)]
        if arrived or sending is not None:
            steps.append(("send", end))
        elif (decided is None and recorded.verdicts) or status == "declined":
            steps.append(("verdict", end))
        else:
            steps.append(("channel" if recorded.virtual or decided is None else "send", end))
    segments: list[Segment] = []
    at = asked
    for kind, until in steps:
        if until is not None and (reached := min(until, end)) > at:
            segments.append(Segment(kind, at, reached))
            at = reached
    return Row(record["client"], status if status in STATUSES else "lost", tuple(segments), end)


def _seconds(record: Mapping[str, Any], key: str) -> float | None:
    """Return the time of an event in seconds since the round began, or None."""
    seconds = finite(record.get(key))
    return None if seconds is None or seconds < 0 else seconds
