"""The timeline of one round as a Gantt chart: when each client trained, waited and sent.

In rounds that do not wait, it begins with the oldest task of the round, some versions before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fedmx.report.formats import duration, finite
from fedmx.report.html import Html, element, join
from fedmx.report.participation import STATUSES
from fedmx.report.summary import RunSummary
from fedmx.report.svg import (
    INK,
    PANEL,
    QUIET,
    RUN,
    STEPS,
    captioned,
    clock_units,
    fitting_unit,
    html_of,
    new_figure,
    style_axes,
)
from fedmx.report.tasks import TIMES, window_of
from fedmx.run import RunError

MAX_ROWS = 60
ASKED = "asked_s"
IN_FLIGHT = "in-flight"
_WITHOUT_PLAN = ("rejected", "not-selected")  # of clients that may not be in the plan
_DEADLINES = ("clock.deadline_s", "network.round_deadline_s")

Kind = Literal["train", "verdict", "channel", "send", "work"]
"""Training, waiting for a verdict or the channel, sending; ``work``: training and sending together,
if the time between them is not recorded."""


class Segment(NamedTuple):
    """A client's activity, with its times in seconds since the round began."""

    kind: Kind
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Row:
    """The times of one task.

    Attributes:
        client: the client's id.
        status: accepted, rejected, declined, lost or in-flight.
        segments: in order.
        end_s: seconds since the round began.
    """

    client: int
    status: str
    segments: tuple[Segment, ...]
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """The times of one round, or of the last rounds up to one, if they do not wait.

    Attributes:
        round: from 1.
        rows: in the order of the plan, of at most `MAX_ROWS` clients.
        more: the number of other clients with a task.
        without_task: the number of clients of the plan that never had a task.
        duration_s: of `round` by the clock; None: the round failed.
        deadline_s: of the round; None: it had none.
        virtual: whether time is virtual.
        one_machine: whether the times are from a simulation without simulated devices.
        median: whether the round was chosen because it has the median duration.
        first: the first round of the figure, if rounds do not wait; otherwise None.
        ends_s: when each of these rounds ended.
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
    first: int | None = None
    ends_s: Sequence[float] = ()

    @property
    def title(self) -> str:
        """The name of the figure."""
        if self.first is None:
            return f"Timeline of round {self.round}"
        if self.first == self.round:
            return f"Timeline of version {self.round}"
        return f"Timeline of versions {self.first} to {self.round}"

    @property
    def clients(self) -> list[int]:
        """The clients in their order, from the top of the figure."""
        return list(dict.fromkeys(row.client for row in self.rows))


def timeline_of(run: RunSummary, round: int | None = None) -> Timeline | None:
    """Return the times of a round; None: no round was given, and the run has no times of clients.

    The times of the machine that simulates all clients are not times of clients.

    Args:
        run: the run.
        round: the round; None: one of median duration.

    Raises:
        RunError: there is no such round, or it has no times.
    """
    one_machine = not run.virtual and run.folder.facts.get("mode") == "simulation"
    chosen = _median_round(run) if round is None else round
    if chosen is None or (one_machine and round is None):
        return None
    path = run.folder.path
    records: Sequence[Mapping[str, Any]] = list(run.folder.clients(chosen))
    point = next((p for p in run.points if p.round == chosen), None)
    if round is not None and point is None and not records:
        raise RunError(
            f"{path}: there is no round {round}; the run has {run.rounds}, counted from 1"
        )
    duration_s = point.clock_s if point else None
    window = window_of(run, chosen, records)
    if window is not None:
        records = window.records
    times = [_times(record) for record in records]
    asked = [
        (record, at)
        for record, at in zip(records, times, strict=True)
        if ASKED in at and isinstance(record.get("client"), int)
    ]
    if not asked:
        if round is None:
            return None
        raise RunError(f"{path}: no times of clients were recorded in round {round}")
    last_s = max(max(at.values()) for _, at in asked)
    end_s = last_s if duration_s is None else duration_s
    if window is not None:
        end_s = window.ends_s[-1]
    shown = _evenly_by_status(asked) if window is None else _of_first_clients(asked)
    known = {event for _, at in asked for event in at}
    sees_training = run.virtual or "trained_s" in known
    rows = [
        _row(record, at, end_s, run.virtual, sees_training, "decided_s" in known)
        for record, at in shown
    ]
    # A simulation without devices has no deadline.
    keys = () if one_machine else _DEADLINES
    deadlines = (finite(run.settings.get(key)) for key in keys)
    return Timeline(
        round=chosen,
        rows=rows,
        more=len({one["client"] for one, _ in asked}) - len({row.client for row in rows}),
        without_task=sum(
            ASKED not in at and record.get("status") not in _WITHOUT_PLAN
            for record, at in zip(records, times, strict=True)
        ),
        duration_s=duration_s,
        deadline_s=next((deadline for deadline in deadlines if deadline is not None), None),
        virtual=run.virtual,
        one_machine=one_machine,
        median=round is None,
        first=None if window is None else window.first,
        ends_s=() if window is None else window.ends_s,
    )


def _median_round(run: RunSummary) -> int | None:
    """Return the last round whose duration is the median, or None."""
    times = sorted(p.clock_s for p in run.points if p.clock_s is not None)
    if not times:
        return None
    median = times[(len(times) - 1) // 2]
    return next(p.round for p in reversed(run.points) if p.clock_s == median)


Asked = tuple[Mapping[str, Any], Mapping[str, float]]
"""The record of a task, and its times."""


def _of_first_clients(asked: Sequence[Asked]) -> list[Asked]:
    """Return all tasks of the first `MAX_ROWS` clients."""
    first = list(dict.fromkeys(record["client"] for record, _ in asked))[:MAX_ROWS]
    chosen = frozenset(first)
    return [one for one in asked if one[0]["client"] in chosen]


def _evenly_by_status(asked: Sequence[Asked]) -> list[Asked]:
    """Return at most `MAX_ROWS` clients in order, as evenly as possible from each status."""
    seen: Counter[str] = Counter()
    ranks = []
    for place, (record, _) in enumerate(asked):
        status = str(record.get("status"))
        ranks.append((seen[status], place))
        seen[status] += 1
    return [asked[place] for place in sorted(place for _, place in sorted(ranks)[:MAX_ROWS])]


def _times(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the recorded events in seconds since the round began."""
    found = {key: finite(record.get(key)) for key in TIMES}
    return {key: seconds for key, seconds in found.items() if seconds is not None and seconds >= 0}


def _row(
    record: Mapping[str, Any],
    at: Mapping[str, float],
    round_end_s: float,
    virtual: bool,
    sees_training: bool,
    sees_verdicts: bool,
) -> Row:
    """Return one client's row; a client without an end ends with the round.

    Without offers, a real server does not know when training ended and sending began.

    Args:
        record: of the client.
        at: its events.
        round_end_s: the end of the round.
        virtual: whether time is virtual.
        sees_training: whether the records have the end of training, as always in virtual time.
        sees_verdicts: whether the records have verdicts.
    """
    trained, decided, sending = (at.get(key) for key in TIMES[1:4])
    status = str(record.get("status"))
    end = max(at[ASKED], at.get("ended_s", round_end_s))
    arrived = status in ("accepted", "rejected")
    steps: list[tuple[Kind, float | None]]
    if trained is None:
        steps = [("train" if sees_training and not arrived else "work", end)]
    else:
        steps = [("train", trained), ("verdict", decided), ("channel", sending)]
        if arrived or sending is not None:
            steps.append(("send", end))
        elif status == IN_FLIGHT:
            steps.append(("work", end))
        elif (decided is None and sees_verdicts) or status == "declined":
            steps.append(("verdict", end))
        else:
            steps.append(("channel" if virtual or decided is None else "send", end))
    segments: list[Segment] = []
    begin = at[ASKED]
    for kind, until in steps:
        if until is not None and (reached := min(until, end)) > begin:
            segments.append(Segment(kind, begin, reached))
            begin = reached
    known = (*STATUSES, IN_FLIGHT)
    return Row(record["client"], status if status in known else "lost", tuple(segments), end)


# For each kind of segment its words in the legend, the index of its colour, and its share of the
# row's height. Work is thick and waiting is thin, so that they also differ without colour.
SEGMENT_STYLES: dict[Kind, tuple[str, int, float]] = {
    "train": ("training, download of its task included", 0, 0.74),
    "work": ("training and sending, not recorded separately", 2, 0.74),
    "verdict": ("waiting for the verdict on its offer", 4, 0.34),
    "channel": ("waiting for the channel", 6, 0.12),
    "send": ("sending", 1, 0.74),
}
# For each status its sign in the legend, matplotlib's name of the shape, and whether it is hollow.
MARKS = {
    "accepted": ("●", "o", False),
    "declined": ("◇", "D", True),
    "rejected": ("■", "s", False),
    "lost": ("✕", "x", False),
}
_MAX_DEADLINE_RATIO = (
    1.6  # to the round's duration; a later deadline would shorten the bars too much
)
_ROW_INCHES = 0.15


def shows_deadline(timeline: Timeline) -> bool:
    """Return whether the deadline is early enough to be drawn."""
    deadline_s = timeline.deadline_s
    return deadline_s is not None and deadline_s <= _MAX_DEADLINE_RATIO * _end_s(timeline)


def draw_timeline(timeline: Timeline) -> Html:
    """Return the chart; the first client of the plan is at the top."""
    from matplotlib.ticker import MaxNLocator

    rows, end_s = timeline.rows, _end_s(timeline)
    clients = timeline.clients
    places = {client: place for place, client in enumerate(clients)}
    deadline_s = timeline.deadline_s if shows_deadline(timeline) else None
    largest_s = max(end_s, deadline_s or 0.0)
    name = "virtual time" if timeline.virtual else "time"
    if timeline.first is None:
        name += " in the round"
    unit, scale = fitting_unit(clock_units(name), largest_s)
    with new_figure(10.0, 0.75 + _ROW_INCHES * max(len(clients), 4)) as figure:
        axes = figure.add_subplot()
        for kind, (_, colour, height) in SEGMENT_STYLES.items():
            bars = [
                (places[row.client], part.begin_s / scale, (part.end_s - part.begin_s) / scale)
                for row in rows
                for part in row.segments
                if part.kind == kind
            ]
            if bars:
                lanes, lefts, widths = zip(*bars, strict=True)
                axes.barh(lanes, widths, height, lefts, color=RUN[colour], linewidth=0)
        for status, (_, marker, hollow) in MARKS.items():
            ends = [(row.end_s / scale, places[row.client]) for row in rows if row.status == status]
            if ends:
                axes.plot(
                    *zip(*ends, strict=True),
                    marker=marker,
                    markersize=4.2,
                    markeredgewidth=1.3 if marker == "x" else 0.9,
                    markeredgecolor=INK,
                    markerfacecolor=PANEL if hollow else INK,
                    linestyle="",
                    clip_on=False,
                    zorder=4,
                )
        style_axes(axes, unit, "client")
        axes.grid(visible=False, axis="y")
        for at_s in timeline.ends_s:
            axes.axvline(at_s / scale, color=QUIET, linewidth=0.9, linestyle=":")
        if deadline_s is not None:
            axes.axvline(deadline_s / scale, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
        axes.set_xlim(0, 1.02 * largest_s / scale or 1)
        axes.set_ylim(len(clients) - 0.4, -0.6)
        axes.set_yticks(range(len(clients)), [str(client) for client in clients])
        axes.tick_params(axis="y", length=0, labelsize=7.5)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=STEPS))
        axes.ticklabel_format(axis="x", scilimits=(-3, 7), useOffset=False)
        return html_of(figure, timeline.title)


def _end_s(timeline: Timeline) -> float:
    known = timeline.ends_s[-1:] or [timeline.duration_s or 0.0]
    return max([*known, *(row.end_s for row in timeline.rows)])


def timeline_section(timeline: Timeline | None, label: str | None) -> Html | None:
    """Return the chart with its legend; None: there is no timeline.

    Args:
        timeline: the times of the round.
        label: the run's name on a page with several runs.
    """
    if timeline is None:
        return None
    heading = timeline.title
    return element(
        "section",
        element("h2", heading if label is None else f"{heading} of {label}"),
        element("p", _summary(timeline)),
        element("ul", *(element("li", key) for key in _keys(timeline)), class_="legend"),
        captioned(_caption(timeline), draw_timeline(timeline), heading, wide=True),
    )


def _summary(timeline: Timeline) -> str:
    """Return the duration of the round, and what the chart leaves out."""
    clock = " of virtual time" if timeline.virtual else ""
    sentences = []
    what = "The round" if timeline.first is None else f"Version {timeline.round}"
    if timeline.duration_s is None:
        sentences.append("The round failed.")
    elif timeline.median:
        sentences.append(
            f"{what} has the median duration, {duration(timeline.duration_s)}{clock};"
            " fedmx report RUN --round N shows another."
        )
    else:
        sentences.append(f"{what} took {duration(timeline.duration_s)}{clock}.")
    if timeline.first is not None:
        sentences.append(
            "The figure shows each task that was under way then, in part or as a whole."
        )
    if timeline.one_machine:
        sentences.append(
            "Without clock.devices these are times of the machine that simulated all clients, "
            "and a bar includes waiting for other clients."
        )
    deadline_s = timeline.deadline_s
    if deadline_s is not None and not shows_deadline(timeline):
        sentences.append(f"Its deadline, {duration(deadline_s)}, is beyond the end of the figure.")
    if timeline.without_task:
        were = "clients of the plan were" if timeline.without_task > 1 else "client of the plan was"
        sentences.append(f"{timeline.without_task:,} {were} given no task.")
    return " ".join(sentences)


def _caption(timeline: Timeline) -> str:
    shown = len(timeline.clients)
    if timeline.first is not None:
        more = f"; {timeline.more:,} more are not drawn" if timeline.more else ""
        return f"{shown} client{'s' if shown > 1 else ''} in the order of their first tasks{more}"
    if not timeline.more:
        return f"{shown} client{'s' if shown > 1 else ''} in the order of the plan"
    return (
        f"{shown} clients in the order of the plan, as evenly as possible from each status; "
        f"{timeline.more:,} more are not drawn"
    )


def _keys(timeline: Timeline) -> list[Html]:
    """Return the legend in the order of a client's activities."""
    kinds = {part.kind for row in timeline.rows for part in row.segments}
    keys = [
        join(
            element(
                "span",
                class_="swatch",
                style=f"border-color: var(--run-{colour}); border-top-width: {14 * height:.0f}px",
            ),
            words,
        )
        for kind, (words, colour, height) in SEGMENT_STYLES.items()
        if kind in kinds
    ]
    ends = Counter(row.status for row in timeline.rows)
    keys += [join(f"{sign} {status}") for status, (sign, _, _) in MARKS.items() if status in ends]
    if shows_deadline(timeline):
        keys.append(join(f"dashed: deadline, {duration(timeline.deadline_s)}"))
    if timeline.first is not None:
        keys.append(join("dotted: a new version of the model"))
    return keys
