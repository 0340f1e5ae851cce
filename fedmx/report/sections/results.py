"""The section about the results: tiles of one run, or a table of several."""

from __future__ import annotations

from collections.abc import Sequence

from fedmx.report.figures.html import Child, Html, element, join, turned
from fedmx.report.figures.key import key
from fedmx.report.records.comparison import Cell, compare_groups, comparison
from fedmx.report.records.compression import Compression
from fedmx.report.records.groups import Group, seed_of
from fedmx.report.records.points import Point
from fedmx.report.records.quantities import duration, mebibytes, number, percent, target_percent
from fedmx.report.records.summary import RunSummary
from fedmx.report.records.verdict import group_verdict

Targets = tuple[float | None, float | None]
"""Two accuracies to which rounds, bytes and time are counted: on all test samples, and the mean
over clients."""


def cards(run: RunSummary, targets: Targets) -> Html:
    """Return the tiles of one run: what was measured and is not nothing."""
    final, best, by_client = run.final(), run.best(), run.final_by_client()
    target, client_target = targets
    rows = dict(comparison([run], *targets))
    tiles: list[Html] = []
    if final is not None and best is not None:
        more = f"after round {final.round}"
        is_best = percent(final.accuracy) == percent(best.accuracy)
        if is_best:
            more += ", the best"
        tiles.append(_card("Final accuracy", percent(final.accuracy), more))
        if not is_best:
            tiles.append(_card("Best accuracy", percent(best.accuracy), f"round {best.round}"))
    if by_client is not None:
        spread = f"mean over clients; variance {number(by_client.client_variance)}"
        tiles.append(_card("Final accuracy by client", percent(by_client.client_accuracy), spread))
    if (loss := run.final_loss()) is not None:
        tiles.append(_card("Final loss", number(loss)))
    tiles.append(_card("Rounds", rows["Rounds"][0]))
    if run.up_bytes:
        tiles.append(_card("Bytes up", mebibytes(run.up_bytes), _way("clients to server", run.up)))
    if run.down_bytes:
        way = _way("server to clients", run.down)
        tiles.append(_card("Bytes down", mebibytes(run.down_bytes), way))
    if run.control_bytes:
        tiles.append(_card("Control bytes", mebibytes(run.control_bytes)))
    if run.file_bytes:
        tiles.append(_card("File bytes", mebibytes(run.file_bytes), "assets, both ways"))
    if run.seconds:
        per_round = f"{duration(run.seconds / len(run.points))} a round"
        tiles.append(_card("Time", duration(run.seconds), per_round))
    if run.virtual:
        per_round = f"{duration((run.virtual_s or 0.0) / len(run.points))} a round"
        tiles.append(_card("Virtual time", duration(run.virtual_s), per_round))
    if target is not None:
        tiles.append(_target_card(f"To {target_percent(target)}", run.reached(target)))
    if client_target is not None:
        label = f"To {target_percent(client_target)}, mean over clients"
        tiles.append(_target_card(label, run.reached_by_clients(client_target)))
    return element("section", element("h2", "Results"), element("div", *tiles, class_="cards"))


def verdicts(groups: Sequence[Group], target: float | None) -> Html:
    """Return a line for each group: how it is drawn, its name, and what became of it."""
    lines = []
    for index, group in enumerate(groups):
        found = group_verdict(group, target)
        name = element("strong", group.title)
        words = element("span", found.words, class_=found.kind)
        lines.append(element("li", key(index), name, ": ", words))
    return element("ul", *lines, class_="verdicts")


def side_by_side(groups: Sequence[Group], targets: Targets) -> Html:
    """Return the table of several groups, with a row for each if they are many."""
    found: list[tuple[str, list[Child]]] = [
        (label, [_cell(cell) for cell in cells])
        for label, cells in compare_groups(groups, *targets)
    ]
    runs = [run for group in groups for run in group.runs]
    ends = {(run.status, run.reason) for run in runs}
    if any(run.reason for run in runs) and not (len(ends) == 1 and runs[0].status == "done"):
        found.insert(1, ("Why it ended", [_reasons(group) for group in groups]))
    names = [join(key(index), group.title) for index, group in enumerate(groups)]
    parts: list[Child] = [element("h2", "Results"), turned("", names, found, "numbers")]
    if any(len(group.runs) > 1 for group in groups):
        words = "Of several seeds: the mean, and below it the least and the largest value."
        parts.append(element("p", words, class_="quiet"))
    return element("section", *parts)


def _cell(cell: Cell) -> Html:
    return join(cell.text, element("div", cell.range, class_="range") if cell.range else None)


def _reasons(group: Group) -> Html:
    several = len(group.runs) > 1
    lines = [
        element("div", f"seed {seed_of(run)}: {run.reason}" if several else run.reason)
        for run in group.runs
        if run.reason
    ]
    same = {run.reason for run in group.runs}
    if several and len(same) == 1:
        lines = [element("div", group.runs[0].reason)]
    return element("div", *lines, class_="wrap")


def _target_card(label: str, point: Point | None) -> Html:
    if point is None:
        return _card(label, "not reached")
    time = f"{duration(point.virtual_s)} virtual" if point.virtual else duration(point.time_s)
    used = ", ".join(size.replace(" ", "\u00a0") for size in (mebibytes(point.bytes), time))
    return _card(label, f"round {point.round}", used)


def _way(direction: str, compression: Compression | None) -> str:
    return direction if compression is None else f"{direction}; {compression}"


def _card(label: str, value: str, more: str | None = None) -> Html:
    return element(
        "div",
        element("div", label, class_="label"),
        element("div", value, class_="value"),
        element("div", more, class_="more") if more else None,
        class_="card",
    )
