"""The section with the curves: accuracy and loss against rounds, bytes and time."""

from __future__ import annotations

from collections.abc import Sequence

from fedmx.report.figures.curves import draw
from fedmx.report.figures.html import Child, Html, element, join
from fedmx.report.figures.key import key
from fedmx.report.figures.measures import ALL_AXES, ALL_MEASURES, BY_CLIENT
from fedmx.report.figures.svg import captioned
from fedmx.report.records.groups import Group
from fedmx.report.records.quantities import target_percent
from fedmx.report.sections.fork import Branches
from fedmx.report.sections.results import Targets


def curves_section(groups: Sequence[Group], targets: Targets, fork: Branches | None) -> Html:
    """Return the figures with what there is to know of them.

    Args:
        groups: what is compared.
        targets: accuracies to draw as level lines.
        fork: a single run that is a fork: it is drawn with the run that it is a fork of.
    """
    target, client_target = targets
    mark = None
    if fork is not None:
        pairs = zip(*fork.curves(), strict=True)
        groups = [Group.alone(run, label) for run, label in pairs]
        mark = fork.origin.round or None
    parts = []
    for axis in ALL_AXES:
        for measure in ALL_MEASURES:
            level = client_target if measure is BY_CLIENT else target
            svg = draw(groups, measure, axis, level, mark)
            if svg is not None:
                parts.append(captioned(f"{measure.name} against {axis.name}", svg))
    if not parts:
        text = "No round has been evaluated yet, so there is nothing to draw."
        return element("section", element("h2", "Curves"), element("p", text, class_="quiet"))
    keys = [element("li", one) for one in _keys(groups, targets, mark)]
    legend = element("ul", *keys, class_="legend")
    grid = element("div", *parts, class_="figures")
    return element("section", element("h2", "Curves"), legend, grid)


def _keys(groups: Sequence[Group], targets: Targets, mark: int | None) -> list[Child]:
    runs = [run for group in groups for run in group.runs]
    keys: list[Child] = []
    if len(groups) > 1:
        keys += [join(key(index), group.title) for index, group in enumerate(groups)]
    else:
        keys.append(join(key(0), "test data"))
    several = any(len(group.runs) > 1 for group in groups)
    trained = any(point.train_loss is not None for run in runs for point in run.points)
    if len(runs) == 1 and trained:
        faint = element("span", class_="swatch faint", style="border-color: var(--run-0)")
        keys.append(join(faint, "training loss, mean over participants"))
    if several:
        keys.append("line: the mean over the seeds; shaded: from the least to the largest")
        if len({run.points[-1].round for run in runs if run.points}) > 1:
            keys.append("thin: a seed alone, after others have ended")
    elif any(run.final_by_client() for run in runs):
        keys.append("shaded: one standard deviation over the clients")
    drawn = dict.fromkeys(target_percent(one) for one in targets if one is not None)
    if drawn:
        keys.append(f"dashed: target, {' and '.join(drawn)}")
    if mark is not None:
        keys.append(f"dotted: round {mark}, after which the fork goes its own way")
    return keys
