"""The cells of the papers' tables and figures and their experiments, from papers/*/cells.yaml."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedmx import Experiment

HERE = Path(__file__).resolve().parent
DOCUMENTS = ("thesis", "stc", "knapsack", "fedaim", "fedsso", "others")


@dataclass(frozen=True)
class Cell:
    """One run of an experiment file.

    Attributes:
        group: the table or the figure that the cell belongs to.
        labels: its place there, one label an axis of the group.
        seed: of the run.
        file: the experiment file, a name in this folder.
        overrides: ``PATH=VALUE``, as of ``fedmx run --set``.
    """

    group: str
    labels: tuple[str, ...]
    seed: int
    file: str
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """The labels and the seed, as the run folder has them."""
        return "-".join([*self.labels, f"s{self.seed}"])

    @property
    def path(self) -> str:
        """The group and the name: what selects the cell on a command line."""
        return f"{self.group}/{self.name}"

    def command(self) -> list[str]:
        """Return the arguments of ``fedmx`` that run this cell."""
        sets = itertools.chain.from_iterable(("--set", setting) for setting in self.settings)
        return ["run", str(HERE / self.file), *sets]

    def experiment(self) -> Experiment:
        """Return the experiment that this command runs."""
        return Experiment.read(HERE / self.file, self.settings, modules=None)

    @property
    def settings(self) -> list[str]:
        """The seed and the overrides."""
        return [f"seed={self.seed}", *self.overrides]


def cells(patterns: Sequence[str] = ("*",)) -> list[Cell]:
    """Return the cells whose paths match one of the patterns, in the order in which they are run.

    A pattern without a slash names whole groups, one without a seed the cells of all seeds. All
    cells with the first seed come before those with the second one, then those of the first
    pattern before those of the second one.

    Raises:
        LookupError: no cell matches one of the patterns.
    """
    found = [cell for one in patterns for cell in _matched(one if "/" in one else f"{one}/*")]
    return sorted(dict.fromkeys(found), key=lambda cell: cell.seed)


def _matched(pattern: str) -> list[Cell]:
    group, _, name = pattern.partition("/")
    found = [
        cell
        for one, own in _by_group().items()
        if fnmatchcase(one, group)
        for cell in own
        if fnmatchcase(cell.name, name) or fnmatchcase("-".join(cell.labels), name)
    ]
    if not found:
        raise LookupError(f"no cell matches {pattern!r}; run.py --list shows all")
    return found


def matching(group: str, pattern: str) -> list[Cell]:
    """Return the cells of a group that a pattern names: of all seeds, or of one, as in ``a-s2``."""
    with_seed = re.search(r"-s\d+$", pattern)
    return [
        cell
        for cell in cells([group])
        if fnmatchcase(cell.name if with_seed else "-".join(cell.labels), pattern)
    ]


def parsed(name: str) -> list[Any]:
    """Return what the documents' files of this name hold, in the order of the documents."""
    return [yaml.safe_load((HERE / "papers" / one / name).read_text()) for one in DOCUMENTS]


@cache
def _by_group() -> dict[str, list[Cell]]:
    """Return the cells of each group, in the order of the files."""
    groups = itertools.chain.from_iterable(one.items() for one in parsed("cells.yaml"))
    return {name: _cells_of(name, group) for name, group in groups}


def _cells_of(name: str, group: dict[str, Any]) -> list[Cell]:
    """Return the cells of a group: each choice of one label an axis, with each seed.

    A label may bring overrides, another `file`, and other `seeds` for its cells.
    """
    made = []
    for labels in itertools.product(*group.get("axes", [])):
        choices = [axis[label] for axis, label in zip(group["axes"], labels, strict=True)]
        parts: list[dict[str, Any]] = [
            choice if isinstance(choice, dict) else {"set": choice} for choice in choices
        ]
        if any(set(part.get("not_with", ())) & set(labels) for part in parts):
            continue
        file = next((part["file"] for part in parts if "file" in part), group.get("file", ""))
        seeds = next((part["seeds"] for part in parts if "seeds" in part), group["seeds"])
        overrides = [*group.get("set", []), *(one for part in parts for one in part.get("set", []))]
        made += [Cell(name, labels, seed, file, tuple(overrides)) for seed in seeds]
    return made
