"""The part of a page that shows one round: who trained, who waited, who sent, and how it ended."""

from __future__ import annotations

from collections import Counter

from fedmx.report.figures.html import Html, element, join
from fedmx.report.figures.timeline import LOOKS, MARKS, draw_timeline, shows_deadline
from fedmx.report.records.quantities import duration
from fedmx.report.records.timeline import Timeline


def timeline_section(timeline: Timeline | None, label: str | None) -> Html | None:
    """The chart with its legend; None when there is none. ``label`` is the run's, among several."""
    if timeline is None:
        return None
    heading = f"Timeline of round {timeline.round}"
    caption = element("figcaption", _caption(timeline))
    return element(
        "section",
        element("h2", heading if label is None else f"{heading} of {label}"),
        element("p", _said(timeline)),
        element("ul", *(element("li", key) for key in _keys(timeline)), class_="legend"),
        element("figure", caption, draw_timeline(timeline)),
    )


def _said(timeline: Timeline) -> str:
    """Which round this is, how long it took, and what of it is not drawn."""
    clock = " of virtual time" if timeline.virtual else ""
    said = []
    if timeline.took_s is None:
        said.append("The round failed.")
    elif timeline.median:
        said.append(
            f"Half of the rounds took no longer than this one, {duration(timeline.took_s)}{clock};"
            " fedmx report RUN --round N shows another."
        )
    else:
        said.append(f"The round took {duration(timeline.took_s)}{clock}.")
    if timeline.one_machine:
        said.append(
            "Without clock.devices these are times of the machine that simulated all clients, "
            "and a bar includes waiting for the others."
        )
    deadline_s = timeline.deadline_s
    if deadline_s is not None and not shows_deadline(timeline):
        said.append(f"Its deadline, {duration(deadline_s)}, is further off than the figure goes.")
    if timeline.unasked:
        were = "clients of the plan were" if timeline.unasked > 1 else "client of the plan was"
        said.append(f"{timeline.unasked:,} {were} never given a task.")
    return " ".join(said)


def _caption(timeline: Timeline) -> str:
    shown = len(timeline.rows)
    if not timeline.more:
        return f"{shown} client{'s' if shown > 1 else ''} in the order of the plan"
    return (
        f"{shown} clients in the order of the plan, as evenly as can be from each way of ending; "
        f"{timeline.more:,} more are not drawn"
    )


def _keys(timeline: Timeline) -> list[Html]:
    """What is drawn and nothing else, in the order in which a client goes through it."""
    kinds = {part.kind for row in timeline.rows for part in row.segments}
    keys = [
        join(
            element(
                "span",
                class_="swatch",
                style=f"border-color: var(--run-{look.colour}); "
                f"border-top-width: {14 * look.height:.0f}px",
            ),
            look.words,
        )
        for kind, look in LOOKS.items()
        if kind in kinds
    ]
    ends = Counter(row.status for row in timeline.rows)
    keys += [join(f"{m.sign} {m.words}") for status, m in MARKS.items() if status in ends]
    if shows_deadline(timeline):
        keys.append(join(f"dashed: deadline, {duration(timeline.deadline_s)}"))
    return keys
