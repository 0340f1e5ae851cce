"""What is checked when an experiment is made in Python: its parts, and data that are there already.

A wrong name, setting or part is shown by the line that gives it, and not by the one that runs it.
No model is built, no data set is loaded, and no module that is named is imported; what these hold
is checked when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fedmx.components.build import bind, build, build_part
from fedmx.components.catalogue import read_catalogue, unknown_name
from fedmx.components.component import Component
from fedmx.errors import ExperimentError
from fedmx.experiment.sections import ClockSection, ComputeSection, LogicSection
from layers.compute.data.dataset import Normalise, materialise
from layers.compute.data.datasets import Dataset
from layers.compute.data.partitions import divide
from layers.compute.errors import DataError, NormaliseError, PartitionError
from layers.logic.seeds import derive


def check_parts(
    compute: ComputeSection, logic: LogicSection, clock: ClockSection, clients: int, seed: int
) -> None:
    """Check the parts of an experiment, as far as they are known.

    Raises:
        ExperimentError: some are wrong; the error has one line for each problem.
    """
    problems: list[str] = []

    def tried(check: Callable[[], object]) -> None:
        try:
            check()
        except ExperimentError as error:
            problems.extend(error.problems)

    for check in _checks(compute, logic, clock):
        tried(check)
    data = compute.data.object
    if isinstance(data, Dataset) and not problems:
        tried(lambda: _check_data(data, compute, clients, seed, logic))
    if problems:
        raise ExperimentError.of("experiment", problems)


def _checks(
    compute: ComputeSection, logic: LogicSection, clock: ClockSection
) -> Iterator[Callable[[], object]]:
    model = compute.model
    if _named(model) and model.name not in (known := read_catalogue()["models"]):
        text = unknown_name("model", model.name, known)
        yield lambda: _refuse(model.source.problem(model.where, text))
    if _named(compute.data):
        yield lambda: bind("data set", compute.data)
    parts: list[tuple[Callable[..., Any], str, Component | None]] = [
        (build, "partition", compute.partition),
        (build, "schedule", compute.train.schedule),
        (build, "preset", logic.preset),
        (build_part, "selector", logic.selector),
        (build_part, "aggregator", logic.aggregator),
        *((build_part, "hook", hook) for hook in logic.hooks),
        (bind, "devices", clock.devices),
        (bind, "availability", clock.availability),
    ]
    for make, kind, part in parts:
        if part is not None and (part.object is not None or _named(part)):
            yield partial(make, kind, part)


def _check_data(
    data: Dataset, compute: ComputeSection, clients: int, seed: int, logic: LogicSection
) -> None:
    """Check that values become inputs, and that the samples can be divided.

    Raises:
        ExperimentError: they do not, or cannot.
    """
    given = compute.normalise
    try:
        normalise = None if given is None else Normalise(given.scale, given.mean, given.std)
        materialise(data.train, np.arange(1), normalise)
    except NormaliseError as error:
        text = str(error).removeprefix("normalise").removeprefix(":").strip()
        _refuse(compute.data.source.problem(("compute", "normalise"), text))
    if logic.hooks or (logic.preset is not None and logic.preset.name != "fedavg"):
        return  # hooks may take samples away before the others are divided
    partition = build("partition", compute.partition)
    try:
        divide(data, partition, clients, derive(seed, "partition"))
    except (PartitionError, DataError) as error:
        _refuse(compute.partition.source.problem(("compute", "partition"), str(error)))


def _named(part: Component) -> bool:
    """Return whether a part is one of fedmx, by its name."""
    return part.object is None and ":" not in part.name and not part.name.startswith("<")


def _refuse(text: str) -> None:
    raise ExperimentError(text)
