"""The checks of an experiment's parts when it is made or read, and of data that are there already.

They show a wrong setting or part by the line that gives it, and not by the one that runs it. They
build no model, load no data set and import no named module; what these hold is checked when they
are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fedmx.components.build import bind, build
from fedmx.components.catalogue import KINDS
from fedmx.components.component import Component, Source
from fedmx.components.text import Where
from fedmx.errors import ExperimentError
from fedmx.experiment.sections import MOST_HOOKS, ComputeSection, LogicSection
from layers.compute.data.dataset import Normalise, materialise
from layers.compute.data.datasets import Dataset
from layers.compute.data.partitions import divide
from layers.compute.errors import DataError, NormaliseError, PartitionError
from layers.logic.seeds import derive

_CHECKS: Mapping[str, Callable[[str, Component], Any]] = {
    "partition": build,
    "schedule": build,
    "loss": build,
    "preset": build,
    "selector": build,
    "aggregator": build,
    "hook": build,
    "trainer": build,
    "attack": build,
    "privacy": build,
    "data set": bind,
    "devices": bind,
    "uploads": bind,
    "availability": bind,
}
"""What checks a component of each kind; a model is not checked."""


def check_parts(
    components: Iterable[Component],
    compute: ComputeSection,
    logic: LogicSection,
    clients: int,
    seed: int,
) -> None:
    """Check the components of an experiment, as far as they are known.

    Raises:
        ExperimentError: some are wrong; the error has one line for each problem.
    """
    problems = _problems_of(components)
    if problems:
        raise ExperimentError.of("experiment", problems)
    if isinstance(compute.data.object, Dataset):
        _check_data(compute.data.object, compute, clients, seed, logic)


def part_problems(values: Mapping[str, Any], source: Source) -> list[str]:
    """Return the problems of the parts that an experiment's mapping names.

    A value that is no part is left to the schema.
    """
    return _problems_of(_parts_in(values, source))


def _parts_in(values: Mapping[str, Any], source: Source) -> Iterator[Component]:
    for kind in KINDS.values():
        value: Any = values
        for key in kind.place:
            value = value.get(key) if isinstance(value, Mapping) else None
        items: list[tuple[Where, Any]] = [(kind.place, value)]
        if isinstance(value, list | tuple):
            items = [((*kind.place, index), item) for index, item in enumerate(value[:MOST_HOOKS])]
        for where, item in items:
            try:
                component = Component.of(item, where, source)
            except ValueError:
                continue
            yield component
            yield from component.all_inner()


def _problems_of(components: Iterable[Component]) -> list[str]:
    problems: list[str] = []
    for component in components:
        check = _CHECKS.get(component.kind)
        if check is None or not all(map(_is_known, (component, *component.all_inner()))):
            continue
        try:
            check(component.kind, component)
        except ExperimentError as error:
            problems += [one for one in error.problems if one not in problems]
    return problems


def _is_known(component: Component) -> bool:
    """Return whether a component is an object, or one of fedmx by its name."""
    if component.object is not None:
        return component.kind != "data set"  # a function may load a data set
    return ":" not in component.name and not component.name.startswith("<")


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
        where = ("compute", "normalise")
        raise ExperimentError(compute.data.source.problem(where, text)) from None
    if logic.hooks or (logic.preset is not None and logic.preset.name != "fedavg"):
        return  # hooks may take samples away before the others are divided
    partition = build("partition", compute.partition)
    try:
        divide(data, partition, clients, derive(seed, "partition"))
    except (PartitionError, DataError) as error:
        where = ("compute", "partition")
        raise ExperimentError(compute.partition.source.problem(where, str(error))) from None
