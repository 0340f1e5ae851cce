"""A sweep as a report shows it: its cells as groups, and the pairs of arms that are compared."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from fedmx.report import Comparison
from fedmx.run import RunError, RunFolder
from fedmx.sweeps.result import SweepResult


def comparison_of(result: SweepResult) -> Comparison:
    """Return the runs of a sweep side by side; arms are compared under each condition.

    Raises:
        RunError: no run has begun, or a run cannot be read.
    """
    begun = {one.folder: one for one in result.states if one.folder is not None}
    if not begun:
        raise RunError(f"{result.folder.path}: no run has begun; there is nothing to report yet")
    folders = [RunFolder.open(path, salvage=True) for path in begun]
    compared = Comparison.of(folders, result.target)
    conditions: dict[tuple[str, ...], list[int]] = {}
    for place, group in enumerate(compared.groups):
        cell = begun[group.runs[0].folder.path].run.cell
        conditions.setdefault(cell.condition, []).append(place)
    pairs = [
        (compared.groups[later], compared.groups[earlier])
        for places in conditions.values()
        for earlier, later in combinations(places, 2)
    ]
    done = sum(one.state == "done" for one in result.states)
    title = f"{result.folder.path.name}: {done} of {len(result.states)} runs are done"
    return replace(compared, pairs=pairs, title=title)
