"""The section of the page with the curves, and the switch between their horizontal axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedmx.report.curves import AXES, FAINT, FEW_SEEDS, Targets, draw, has_values, measures_of
from fedmx.report.fork import Branches
from fedmx.report.formats import target_percent, target_text
from fedmx.report.groups import Group
from fedmx.report.html import Child, Html, element, join
from fedmx.report.summary import RunSummary
from fedmx.report.svg import captioned, sample


def curves_section(groups: Sequence[Group], targets: Targets, fork: Branches | None) -> Html:
    """Return the figures with their legend.

    Args:
        groups: the groups of runs.
        targets: to draw as horizontal lines.
        fork: a single run that is a fork; it is drawn with its parent run.
    """
    mark = None
    if fork is not None:
        pairs = zip(*fork.curves(), strict=True)
        groups = [Group.alone(run, label) for run, label in pairs]
        mark = fork.origin.round or None
    measures = measures_of([run for group in groups for run in group.runs])
    drawn: dict[str, list[Html]] = {}
    for axis in AXES:
        for measure in measures:
            if has_values(groups, measure, axis):
                svg = draw(groups, measure, axis, measure.level(targets), mark)
                figure = captioned(f"{measure.name} against {axis.name}", svg)
                drawn.setdefault(axis.name, []).append(figure)
    if not drawn:
        text = "Fewer than two rounds have been evaluated, so there is no line to draw."
        return element("section", element("h2", "Curves"), element("p", text, class_="quiet"))
    keys = [
        element("li", one, data_key=None if curve is None else str(curve))
        for curve, one in _keys(groups, targets, mark)
    ]
    legend = element("ul", *keys, class_="legend")
    return element("section", element("h2", "Curves"), legend, _switched(drawn))


def _switched(drawn: Mapping[str, Sequence[Html]]) -> Html:
    """Return the figures of each axis; the page shows those of the chosen axis.

    The switch is a row of radio buttons: style.css shows the figures after the chosen one.
    """
    switch: list[Child] = []
    shown: list[Child] = []
    for place, (name, figures) in enumerate(drawn.items()):
        key = f"axis-{place}"
        button = element(
            "input", type="radio", name="axis", id=key, checked="" if place == 0 else None
        )
        switch += [button, element("label", f"against {name}", for_=key)]
        shown.append(element("div", *figures, class_=f"figures of-{key}"))
    return element("div", *(switch if len(drawn) > 1 else ()), *shown, class_="switched")


def _samples_of(run: RunSummary) -> str:
    """Return whose samples the model is evaluated on after a round."""
    given = [path for path, value in run.settings.items() if value]
    if any(path.startswith("compute.evaluate.clients") for path in given):
        return "samples of the clients"
    held_out = any(path.startswith("compute.evaluate.validation") for path in given)
    return "validation data" if held_out else "test data"


def _keys(
    groups: Sequence[Group], targets: Targets, mark: int | None
) -> list[tuple[int | None, Child]]:
    """Return the texts of the legend, each with the curve that it names; None: with no curve."""
    runs = [run for group in groups for run in group.runs]
    keys: list[tuple[int | None, Child]] = []
    if len(groups) > 1:
        keys += [(index, join(sample(index), one.title)) for index, one in enumerate(groups)]
    else:
        keys.append((0, join(sample(0), _samples_of(runs[0]))))
    several = any(len(group.runs) > 1 for group in groups)
    trained = any(point.train_loss is not None for run in runs for point in run.points)
    if len(runs) == 1 and trained:
        faint = element("span", class_="swatch faint", style="border-color: var(--run-0)")
        keys.append((FAINT, join(faint, "training loss, mean over participants")))
    if several:
        words = "line: the mean over the seeds"
        sizes = {len(group.runs) for group in groups if len(group.runs) > 1}
        if max(sizes) > FEW_SEEDS:
            words += "; shaded: from the smallest to the largest"
        if min(sizes) <= FEW_SEEDS:
            words += "; thin: single seeds"
        keys.append((None, words))
        if max(sizes) > FEW_SEEDS and len({run.rounds for run in runs if run.points}) > 1:
            keys.append((None, "thin after its end: a single seed"))
    elif any(run.final_by_client for run in runs):
        keys.append((None, "shaded: one standard deviation over the clients"))
    target, client_target = targets
    drawn = {} if target is None else {target_text(runs[0].metric, target): None}
    if client_target is not None:
        drawn[target_percent(client_target)] = None
    if drawn:
        keys.append((None, f"dashed: target, {' and '.join(drawn)}"))
    if mark is not None:
        keys.append((None, f"dotted: round {mark}, where the fork diverges"))
    return keys
