"""Draw the figures of docs/papers.md from the records, as SVG files in docs/papers.

    python experiments/figures.py [NAME ...]

A curve is the median of the seeds that have reached the round, and the band around it their range.
Panels of labels need the data.
papers/*/figures.yaml defines the figures. The same records give the same files.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import matplotlib as mpl
import numpy as np
from bars import Clusters, Labels
from cells import HERE, parsed
from records import Record, load

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedmx import DataError

FOLDER = HERE.parent / "docs" / "papers"
STYLE = {
    "svg.hashsalt": "fedmx",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
}
DASHES = ("-", "--", "-.", ":")  # so that a curve below another is seen
OVER = {
    "rounds": "round",
    "up": "MiB from clients",
    "down": "MiB to clients",
    "clock": "virtual hours",
    "exchanges": "changes of the global model",
}
COLUMNS = {
    "accuracy": "accuracy",
    "client_accuracy_mean": "mean accuracy over clients",
    "loss": "loss",
    "train_loss": "training loss",
    "client_accuracy_variance": "variance of accuracy over clients",
    "updates": "clients per round",
}


@dataclass(frozen=True)
class Panel:
    """Curves of cells of one group or several, over one quantity."""

    title: str
    group: str | list[str]
    cells: list[str]
    column: str = "accuracy"
    over: str = "rounds"
    bounds: tuple[float, float] | None = None
    target: float | None = None

    def curves(self) -> dict[str, list[Record]]:
        """Return the records of each cell, one a seed; those with two values or more.

        They are in the order of the patterns of `cells`, and of their names within a pattern.
        """
        groups = [self.group] if isinstance(self.group, str) else self.group
        found: dict[tuple[int, str], list[Record]] = {}
        for group in groups:
            for name, record in load(group).items():
                cell = name.rpartition("-s")[0]
                label = cell if group == groups[0] else f"{group} {cell}"
                places = [place for place, one in enumerate(self.cells) if fnmatch(cell, one)]
                if places and len(record.series(self.column)) > 1:  # one point is no curve
                    found.setdefault((places[0], label), []).append(record)
        ordered = sorted(found, key=lambda one: (one[0], _in_order(one[1])))
        return {label: found[place, label] for place, label in ordered}

    def draw(self, axes: Axes) -> None:
        """Draw the curves, the target and a legend."""
        styles = itertools.cycle(DASHES)
        for (label, records), style in zip(self.curves().items(), styles, strict=False):
            at, values = self.by_round(records)
            middle = np.nanmedian(at, axis=0)
            (line,) = axes.plot(middle, np.nanmedian(values, axis=0), style, label=label)
            if len(records) > 1:
                low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
                axes.fill_between(middle, low, high, color=line.get_color(), alpha=0.15, lw=0)
        if self.target is not None:
            axes.axhline(self.target, color="0.5", lw=0.8, ls="--")
        if self.bounds is not None:
            axes.set_ylim(*self.bounds)
        if self.over in ("up", "down"):
            axes.set_xscale("log")  # compressed and dense messages differ by factors
        if self.over == "rounds":
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set(title=self.title, xlabel=OVER[self.over], ylabel=COLUMNS[self.column])
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))

    def by_round(self, records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
        """Return where the seeds' values lie, and the values, both (seeds, rounds that have one).

        A seed without a value in a round that another seed has is NaN there.
        """
        points = [self._points(record) for record in records]
        rounds = sorted(set().union(*points))
        nowhere = (np.nan, np.nan)
        table = np.array([[one.get(round, nowhere) for round in rounds] for one in points])
        return table[..., 0], table[..., 1]

    def _points(self, record: Record) -> dict[int, tuple[float, float]]:
        """Return by round where the record's value lies, and the value."""
        if self.over == "rounds":
            return {round: (round, value) for round, value in record.series(self.column)}
        if self.over == "clock":
            at = np.array(record.columns["clock_s"]) / 3600
        elif self.over == "exchanges":
            at = np.array(record.columns.get("exchanges", range(1, record.rounds + 1)))
        else:
            at = np.cumsum(record.columns[f"{self.over}_bytes"]) / 2**20
        return {round: (at[round - 1], value) for round, value in record.series(self.column)}


def _in_order(label: str) -> list[tuple[float, str]]:
    """Return a key that puts E5 before E10."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", label)
    return [(float(part), "") if part[0].isdigit() else (-1.0, part) for part in parts]


def parse(tree: dict[str, Any]) -> Panel | Labels | Clusters:
    """Return a panel of an entry of figures.yaml."""
    kind = Labels if "labels_of" in tree else Clusters if "stored" in tree else Panel
    return kind(**tree)


def draw(name: str, panels: Sequence[Panel | Labels | Clusters]) -> bool:
    """Write a figure of the panels, but for those without a curve; return whether there is one."""
    panels = [panel for panel in panels if not isinstance(panel, Panel) or panel.curves()]
    if not panels:
        return False
    with mpl.rc_context(STYLE):
        figure, row = plt.subplots(
            1, len(panels), figsize=(4.4 * len(panels), 4.2), squeeze=False, layout="constrained"
        )
        for panel, axes in zip(panels, row[0], strict=True):
            panel.draw(axes)
        FOLDER.mkdir(exist_ok=True)
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
    return True


def main(names: Sequence[str]) -> None:
    """Draw the named figures, or all."""
    trees = {name: tree for one in parsed("figures.yaml") for name, tree in one.items()}
    unknown = sorted(set(names) - set(trees))
    if unknown:
        raise SystemExit(f"no such figure: {', '.join(unknown)}; there are {', '.join(trees)}")
    for name in names or trees:
        try:
            drawn = draw(name, [parse(tree) for tree in trees[name]])
            print(f"{FOLDER / name}.svg" if drawn else f"{name}: none of its cells was run")
        except DataError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
