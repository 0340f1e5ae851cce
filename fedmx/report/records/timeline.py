"""What each client of one round did when: the rows of a Gantt chart, read from a run's records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fedmx.report.records.participation import STATUSES
from fedmx.report.records.quantities import finite
from fedmx.report.records.summary import RunSummary
from fedmx.run import RunError, RunFolder

MOST_ROWS = 60
ASKED = "asked_s"
MOMENTS = (ASKED, "trained_s", "decided_s", "sending_s", "ended_s")
_DEADLINES = ("clock.deadline_s", "network.round_deadline_s")

Kind = Literal["train", "verdict", "channel", "send", "work"]
"""Training, waiting for a verdict or the channel, sending; ``work``: training and sending, of which
nobody saw the end of the one and the beginning of the other."""


class Segment(NamedTuple):
    """Something that took a client from one moment to another, in seconds since the round began."""

    kind: Kind
    begin_s: float
    end_s: float


class Told(NamedTuple):
    """What a round's records tell of anyone: the end of training, verdicts; virtual: all there is.

    Without an offer, nobody tells a real server when training ended and sending began.
    """

    virtual: bool
    training: bool
    verdicts: bool


@dataclass(frozen=True)
class Row:
    """One client, and what became of it at ``end_s``."""

    client: int
    status: str
    segments: tuple[Segment, ...]
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """One round.

    Attributes:
        rows: in the order of the plan, at most `MOST_ROWS`.
        more: how many other clients had a task.
        unasked: how many clients of the plan never had one.
        took_s: by the clock; None for a round that failed.
        deadline_s: of the round, if it had one.
        one_machine: whether its times are those of a simulation without devices of its own.
        median: whether nobody asked for this round, and its duration is the median of all.
    """

    round: int
    rows: Sequence[Row]
    more: int
    unasked: int
    took_s: float | None
    deadline_s: float | None
    virtual: bool
    one_machine: bool
    median: bool


def timeline_of(run: RunFolder, summary: RunSummary, round: int | None = None) -> Timeline | None:
    """Read a round, by default one of median duration; None for a run that tells no times.

    Raises:
        RunError: there is no such round, or it tells no times though it was asked for.
    """
    chosen = _typical(summary) if round is None else round
    if chosen is None:
        return None
    records = list(run.clients(chosen))
    point = next((p for p in summary.points if p.round == chosen), None)
    if round is not None and point is None and not records:
        last = summary.points[-1].round if summary.points else 0
        raise RunError(f"{run.path}: there is no round {round}; it has {last}, counted from 1")
    took_s = point.round_s if point else None
    asked = [
        r for r in records if isinstance(r.get("client"), int) and _moment(r, ASKED) is not None
    ]
    if not asked:
        if round is None:
            return None
        raise RunError(f"{run.path}: no times of clients were recorded in round {round}")
    over_s = max(t for one in asked for key in MOMENTS if (t := _moment(one, key)) is not None)
    told = Told(
        virtual=summary.virtual,
        training=any(_moment(one, "trained_s") is not None for one in asked),
        verdicts=any(_moment(one, "decided_s") is not None for one in asked),
    )
    rows = [_row(one, over_s if took_s is None else took_s, told) for one in _fair(asked)]
    one_machine = not summary.virtual and summary.facts.get("mode") == "simulation"
    # In a simulation without devices no deadline holds.
    paths = () if one_machine else _DEADLINES
    deadlines = (finite(summary.settings.get(path)) for path in paths)
    return Timeline(
        round=chosen,
        rows=rows,
        more=len(asked) - len(rows),
        # Nothing that comes from a stranger to the plan is anything but refused.
        unasked=sum(
            1 for r in records if _moment(r, ASKED) is None and r.get("status") != "rejected"
        ),
        took_s=took_s,
        deadline_s=next((deadline for deadline in deadlines if deadline is not None), None),
        virtual=summary.virtual,
        one_machine=one_machine,
        median=round is None,
    )


def _typical(summary: RunSummary) -> int | None:
    """The last of the rounds whose duration is the median."""
    times = sorted(p.round_s for p in summary.points if p.round_s is not None)
    if not times:
        return None
    median = times[(len(times) - 1) // 2]
    return next(p.round for p in reversed(summary.points) if p.round_s == median)


def _fair(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """At most `MOST_ROWS` records in their order, as evenly as can be from each way of ending."""
    seen: Counter[str] = Counter()
    ranks = []
    for place, record in enumerate(records):
        status = str(record.get("status"))
        ranks.append((seen[status], place))
        seen[status] += 1
    return [records[place] for place in sorted(place for _, place in sorted(ranks)[:MOST_ROWS])]


def _row(record: Mapping[str, Any], over_s: float, told: Told) -> Row:
    """One client's row; one that was still at it when the round was over stops there."""
    asked, trained, decided, sending, ended = (_moment(record, key) for key in MOMENTS)
    assert asked is not None
    status = str(record.get("status"))
    end = max(asked, over_s if ended is None else ended)
    came = status in ("accepted", "rejected")
    steps: list[tuple[Kind, float | None]]
    if trained is None:
        cut_short = not came and (told.virtual or told.training)
        steps = [("train" if cut_short else "work", end)]
    else:
        steps = [("train", trained), ("verdict", decided), ("channel", sending)]
        if came or sending is not None:
            steps.append(("send", end))
        elif (decided is None and told.verdicts) or status == "declined":
            steps.append(("verdict", end))
        else:
            steps.append(("channel" if told.virtual or decided is None else "send", end))
    segments: list[Segment] = []
    at = asked
    for kind, until in steps:
        if until is not None and (reached := min(until, end)) > at:
            segments.append(Segment(kind, at, reached))
            at = reached
    return Row(record["client"], status if status in STATUSES else "lost", tuple(segments), end)


def _moment(record: Mapping[str, Any], key: str) -> float | None:
    moment = finite(record.get(key))
    return None if moment is None or moment < 0 else moment
