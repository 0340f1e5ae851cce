"""The section about the timeline of one round: when each client trained, waited and sent."""

from __future__ import annotations

from collections import Counter

from fedmx.report.figures.html import Html, element, join
from fedmx.report.figures.svg import captioned
from fedmx.report.figures.timeline import MARKS, SEGMENT_STYLES, draw_timeline, shows_deadline
from fedmx.report.records.quantities import duration
from fedmx.report.records.timeline import Timeline


def timeline_section(timeline: Timeline | None, label: str | None) -> Html | None:
    """Return the chart with its legend, or None if there is no timeline.

    Args:
        timeline: the times of the round.
        label: the run's name on a page with several runs; None on a page with one.
    """
    if timeline is None:
        return None
    heading = f"Timeline of round {timeline.round}"
    return element(
        "section",
        element("h2", heading if label is None else f"{heading} of {label}"),
        element("p", _summary(timeline)),
        element("ul", *(element("li", key) for key in _keys(timeline)), class_="legend"),
        captioned(_caption(timeline), draw_timeline(timeline), heading),
    )


def _summary(timeline: Timeline) -> str:
    """Return how long the round took, and what is not drawn."""
    clock = " of virtual time" if timeline.virtual else ""
    sentences = []
    if timeline.duration_s is None:
        sentences.append("The round failed.")
    elif timeline.median:
        sentences.append(
            f"The round has the median duration, {duration(timeline.duration_s)}{clock};"
            " fedmx report RUN --round N shows another."
        )
    else:
        sentences.append(f"The round took {duration(timeline.duration_s)}{clock}.")
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
    shown = len(timeline.rows)
    if not timeline.more:
        return f"{shown} client{'s' if shown > 1 else ''} in the order of the plan"
    return (
        f"{shown} clients in the order of the plan, as evenly as possible from each status; "
        f"{timeline.more:,} more are not drawn"
    )


def _keys(timeline: Timeline) -> list[Html]:
    """Return the legend of what is drawn, in the order of a client's steps."""
    kinds = {part.kind for row in timeline.rows for part in row.segments}
    keys = [
        join(
            element(
                "span",
                class_="swatch",
                style=f"border-color: var(--run-{style.colour}); "
                f"border-top-width: {14 * style.height:.0f}px",
            ),
            style.words,
        )
        for kind, style in SEGMENT_STYLES.items()
        if kind in kinds
    ]
    ends = Counter(row.status for row in timeline.rows)
    keys += [join(f"{m.sign} {m.words}") for status, m in MARKS.items() if status in ends]
    if shows_deadline(timeline):
        keys.append(join(f"dashed: deadline, {duration(timeline.deadline_s)}"))
    return keys
