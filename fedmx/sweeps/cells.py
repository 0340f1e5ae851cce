"""The cells of a sweep: each combination of the axes' values, run once for each seed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.components.text import shown
from fedmx.errors import ExperimentError, FedmxError
from fedmx.experiment.reader import parse_value

EXAMPLE = "logic.preset=fedavg,fedprox"
NOT_VARIED = {
    "seed": "give --seeds N",
    "name": "the sweep names its runs itself",
    "run": "it does not change the result",
    "network": "it does not change the result",
    "executor": "it does not change the result; give --executor",
}
"""The keys of an experiment that cannot vary, each with the alternative."""


@dataclass(frozen=True)
class Axis:
    """A setting and its values, in the order in which they were given.

    Attributes:
        path: of the setting, as ``logic.preset``.
        values: two or more YAML values.
    """

    path: str
    values: tuple[Any, ...]

    def override(self, value: Any) -> str:
        """Return the override of a value, as after ``fedmx run --set``."""
        return f"{self.path}={json.dumps(value)}"

    def label(self, value: Any) -> str:
        """Return a short text for a value."""
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            others = [f"{key}={_value_text(one)}" for key, one in value.items() if key != "name"]
            return " ".join([value["name"], *others])
        return _value_text(value)


def read_axis(text: str) -> Axis:
    """Return the axis of ``PATH=VALUE,VALUE,...``; each value is YAML.

    Raises:
        ExperimentError: the text has another form.
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip():
        raise ExperimentError(f"--vary {shown(text)}: must be PATH=VALUE,VALUE,..., as {EXAMPLE}")
    return axis_of(path, parse_value(f"[{values}]", f"--vary {path.strip()}"))


def axis_of(path: str, values: Sequence[Any]) -> Axis:
    """Return the axis of a setting and its values.

    Raises:
        ExperimentError: cells cannot differ in this setting, or in these values.
    """
    path = path.strip()
    instead = NOT_VARIED.get(path.partition(".")[0])
    if instead is not None:
        raise ExperimentError(f"--vary {path}: cells cannot differ in it; {instead}")
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ExperimentError(f"--vary {path}: must be a list of values, not {shown(values)}")
    axis = Axis(path, tuple(values))
    labels = [axis.label(value) for value in axis.values]
    twice = next((one for one in labels if labels.count(one) > 1), None)
    if twice is not None:
        raise ExperimentError(f"--vary {path}: {shown(twice)} occurs twice; remove one")
    if len(labels) < 2:
        raise ExperimentError(f"--vary {path}: needs two values or more; use --set for one")
    return axis


def check_axes(axes: Sequence[Axis]) -> None:
    """Check that the axes can be combined.

    Raises:
        FedmxError: there are none, or one sets a part of another.
    """
    if not axes:
        raise FedmxError(f"a sweep needs something that varies; give --vary {EXAMPLE}")
    for number, axis in enumerate(axes):
        for other in axes[:number]:
            one, two = sorted((axis.path, other.path), key=len)
            if one == two or two.startswith(f"{one}."):
                raise FedmxError(
                    f"--vary {two}: {'is given twice' if one == two else f'is a part of {one}'}; "
                    "give one --vary with whole values, as {name: fedprox, mu: 0.1}"
                )


def check_overrides(axes: Sequence[Axis], overrides: Sequence[str]) -> None:
    """Check that no override sets a setting that varies, or a part of it.

    Args:
        axes: the axes.
        overrides: ``PATH=VALUE`` texts, as after ``--set``.

    Raises:
        FedmxError: one does.
    """
    for path in (text.partition("=")[0].strip() for text in overrides):
        for axis in axes:
            if path == axis.path or path.startswith(f"{axis.path}."):
                raise FedmxError(
                    f"--set {path}: {axis.path} varies, and each cell sets it; leave --set "
                    "out, and give --vary whole values, as {name: fedprox, mu: 0.1}"
                )


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


MOST_RUNS = 100_000
_NAME_LENGTH = 80  # of a run's name, before its seed and its time


@dataclass(frozen=True)
class Cell:
    """One combination of values.

    Attributes:
        number: from 1, in the order of the axes.
        axes: of the sweep.
        values: one for each axis.
    """

    number: int
    axes: tuple[Axis, ...]
    values: tuple[Any, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as short texts."""
        return tuple(axis.label(one) for axis, one in zip(self.axes, self.values, strict=True))

    @property
    def arm(self) -> str:
        """The value of the first axis, which is compared with the other arms."""
        return self.labels[0]

    @property
    def condition(self) -> tuple[str, ...]:
        """The values of the other axes, under which arms are compared."""
        return self.labels[1:]

    @property
    def overrides(self) -> list[str]:
        """The overrides of this cell, as after ``fedmx run --set``."""
        return [axis.override(one) for axis, one in zip(self.axes, self.values, strict=True)]

    @property
    def settings(self) -> dict[str, Any]:
        """The values by the path of the setting; lists and mappings as short texts."""
        given = zip(self.axes, self.values, self.labels, strict=True)
        return {
            axis.path: label if isinstance(value, list | dict) else value
            for axis, value, label in given
        }

    def __str__(self) -> str:
        return ", ".join(self.labels)


@dataclass(frozen=True)
class CellRun:
    """The run of a cell with one seed."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        """The name of its run folder, without the time; unique in the sweep."""
        words = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(self.cell.labels)).strip("-.")
        return f"{self.cell.number}-{words[:_NAME_LENGTH]}-s{self.seed}"

    @property
    def overrides(self) -> list[str]:
        """The overrides of this run, as after ``fedmx run --set``."""
        return [*self.cell.overrides, f"seed={self.seed}"]

    def __str__(self) -> str:
        return f"{self.cell}, seed {self.seed}"


def cells_of(axes: Sequence[Axis]) -> list[Cell]:
    """Return all cells; the last axis changes fastest."""
    combinations = itertools.product(*(axis.values for axis in axes))
    return [Cell(number, tuple(axes), values) for number, values in enumerate(combinations, 1)]


def runs_of(cells: Sequence[Cell], seeds: Sequence[int]) -> list[CellRun]:
    """Return all runs, seed by seed, so that arms can be compared early.

    Raises:
        ExperimentError: there are too many.
    """
    if len(cells) * len(seeds) > MOST_RUNS:
        raise ExperimentError(
            f"{len(cells)} cells with {len(seeds)} seeds are {len(cells) * len(seeds):,} runs; "
            f"a sweep has {MOST_RUNS:,} at most"
        )
    return [CellRun(cell, seed) for seed in seeds for cell in cells]
