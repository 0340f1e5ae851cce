"""A round's timeline as a Gantt chart: a bar for work, a line for waiting, a mark for the end."""

from __future__ import annotations

from typing import NamedTuple

from fedmx.report.figures.html import Html
from fedmx.report.figures.svg import (
    INK,
    PANEL,
    RUN,
    STEPS,
    clock_units,
    drawing,
    fitting,
    frame,
    html_of,
)
from fedmx.report.records.timeline import Kind, Timeline


class Look(NamedTuple):
    """How a kind of segment is drawn: the page's colour for a run, and its share of the row."""

    words: str
    colour: int
    height: float


# Work is thick and waiting is not, so that they can be told apart without any colour, too.
LOOKS: dict[Kind, Look] = {
    "train": Look("training, the way of its task included", 0, 0.74),
    "work": Look("at work: training and sending, not told apart", 2, 0.74),
    "verdict": Look("waiting for the verdict on its offer", 4, 0.34),
    "channel": Look("waiting for the channel", 6, 0.12),
    "send": Look("sending", 1, 0.74),
}


class Mark(NamedTuple):
    """How an ending is drawn; ``sign`` is the legend's."""

    words: str
    sign: str
    marker: str
    hollow: bool


MARKS = {
    "accepted": Mark("accepted", "●", "o", False),
    "declined": Mark("declined", "◇", "D", True),
    "rejected": Mark("rejected", "■", "s", False),
    "lost": Mark("lost", "✕", "x", False),
}
_DEADLINE_WITHIN = 1.6  # times what was needed; further off, it would leave the bars no room
_ROW_INCHES = 0.15


def shows_deadline(timeline: Timeline) -> bool:
    """Whether the deadline is near enough to be drawn."""
    deadline_s = timeline.deadline_s
    return deadline_s is not None and deadline_s <= _DEADLINE_WITHIN * _end_s(timeline)


def draw_timeline(timeline: Timeline) -> Html:
    """The chart; its top row is the first client of the plan."""
    from matplotlib.ticker import MaxNLocator

    rows, end_s = timeline.rows, _end_s(timeline)
    deadline_s = timeline.deadline_s if shows_deadline(timeline) else None
    furthest = max(end_s, deadline_s or 0.0)
    name = "virtual time in the round" if timeline.virtual else "time in the round"
    unit, scale = fitting(clock_units(name), furthest)
    with drawing(10.0, 0.75 + _ROW_INCHES * max(len(rows), 4)) as figure:
        axes = figure.add_subplot()
        for kind, look in LOOKS.items():
            bars = [
                (place, part.begin_s / scale, (part.end_s - part.begin_s) / scale)
                for place, row in enumerate(rows)
                for part in row.segments
                if part.kind == kind
            ]
            if bars:
                places, lefts, widths = zip(*bars, strict=True)
                axes.barh(places, widths, look.height, lefts, color=RUN[look.colour], linewidth=0)
        for status, mark in MARKS.items():
            ends = [(row.end_s / scale, i) for i, row in enumerate(rows) if row.status == status]
            if ends:
                axes.plot(
                    *zip(*ends, strict=True),
                    marker=mark.marker,
                    markersize=4.2,
                    markeredgewidth=1.3 if mark.marker == "x" else 0.9,
                    markeredgecolor=INK,
                    markerfacecolor=PANEL if mark.hollow else INK,
                    linestyle="",
                    clip_on=False,
                    zorder=4,
                )
        frame(axes, unit, "client")
        axes.grid(visible=False, axis="y")
        if deadline_s is not None:
            axes.axvline(deadline_s / scale, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
        axes.set_xlim(0, 1.02 * furthest / scale or 1)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), [str(row.client) for row in rows])
        axes.tick_params(axis="y", length=0, labelsize=7.5)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=STEPS))
        axes.ticklabel_format(axis="x", scilimits=(-3, 7), useOffset=False)
        return html_of(figure, f"Timeline of round {timeline.round}")


def _end_s(timeline: Timeline) -> float:
    return max([timeline.took_s or 0.0, *(row.end_s for row in timeline.rows)])
