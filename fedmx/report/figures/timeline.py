"""The timeline of a round as a Gantt chart: bars for work and waiting, a mark for the end."""

from __future__ import annotations

from typing import NamedTuple

from fedmx.report.figures.html import Html
from fedmx.report.figures.svg import (
    INK,
    PANEL,
    RUN,
    STEPS,
    clock_units,
    fitting_unit,
    html_of,
    new_figure,
    style_axes,
)
from fedmx.report.records.timeline import Kind, Timeline


class SegmentStyle(NamedTuple):
    """How a kind of segment is drawn.

    Attributes:
        words: in the legend.
        colour: index of the page's colours for runs.
        height: share of the row, 0 to 1.
    """

    words: str
    colour: int
    height: float


# Work is thick and waiting is thin, so that they differ without colour, too.
SEGMENT_STYLES: dict[Kind, SegmentStyle] = {
    "train": SegmentStyle("training, download of its task included", 0, 0.74),
    "work": SegmentStyle("training and sending, not recorded separately", 2, 0.74),
    "verdict": SegmentStyle("waiting for the verdict on its offer", 4, 0.34),
    "channel": SegmentStyle("waiting for the channel", 6, 0.12),
    "send": SegmentStyle("sending", 1, 0.74),
}


class StatusMark(NamedTuple):
    """How a client's status at its end is drawn.

    Attributes:
        words: in the legend.
        sign: in the legend.
        marker: matplotlib's name of the shape.
        hollow: whether only its edge is drawn.
    """

    words: str
    sign: str
    marker: str
    hollow: bool


MARKS = {
    "accepted": StatusMark("accepted", "●", "o", False),
    "declined": StatusMark("declined", "◇", "D", True),
    "rejected": StatusMark("rejected", "■", "s", False),
    "lost": StatusMark("lost", "✕", "x", False),
}
_MAX_DEADLINE_RATIO = 1.6  # to the round's duration; a later deadline would make the bars too short
_ROW_INCHES = 0.15


def shows_deadline(timeline: Timeline) -> bool:
    """Return whether the deadline is near enough to be drawn."""
    deadline_s = timeline.deadline_s
    return deadline_s is not None and deadline_s <= _MAX_DEADLINE_RATIO * _end_s(timeline)


def draw_timeline(timeline: Timeline) -> Html:
    """Return the chart; the first client of the plan is at the top."""
    from matplotlib.ticker import MaxNLocator

    rows, end_s = timeline.rows, _end_s(timeline)
    deadline_s = timeline.deadline_s if shows_deadline(timeline) else None
    largest_s = max(end_s, deadline_s or 0.0)
    name = "virtual time in the round" if timeline.virtual else "time in the round"
    unit, scale = fitting_unit(clock_units(name), largest_s)
    with new_figure(10.0, 0.75 + _ROW_INCHES * max(len(rows), 4)) as figure:
        axes = figure.add_subplot()
        for kind, style in SEGMENT_STYLES.items():
            bars = [
                (place, part.begin_s / scale, (part.end_s - part.begin_s) / scale)
                for place, row in enumerate(rows)
                for part in row.segments
                if part.kind == kind
            ]
            if bars:
                places, lefts, widths = zip(*bars, strict=True)
                axes.barh(places, widths, style.height, lefts, color=RUN[style.colour], linewidth=0)
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
        style_axes(axes, unit, "client")
        axes.grid(visible=False, axis="y")
        if deadline_s is not None:
            axes.axvline(deadline_s / scale, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
        axes.set_xlim(0, 1.02 * largest_s / scale or 1)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(rows)), [str(row.client) for row in rows])
        axes.tick_params(axis="y", length=0, labelsize=7.5)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=STEPS))
        axes.ticklabel_format(axis="x", scilimits=(-3, 7), useOffset=False)
        return html_of(figure, f"Timeline of round {timeline.round}")


def _end_s(timeline: Timeline) -> float:
    return max([timeline.duration_s or 0.0, *(row.end_s for row in timeline.rows)])
