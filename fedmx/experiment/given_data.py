"""The check of a data set that Python code gives to an experiment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedmx.components.build import build
from fedmx.components.text import Where
from fedmx.experiment.sections import ComputeSection, LogicSection
from layers.compute.data.dataset import Normalise, materialise
from layers.compute.data.datasets import Dataset
from layers.compute.data.partitions import divide
from layers.compute.errors import DataError, NormaliseError, PartitionError
from layers.logic.seeds import derive


def data_problems(
    compute: ComputeSection, logic: LogicSection, clients: int, seed: int
) -> Iterator[tuple[Where, str]]:
    """Yield why values do not become inputs, and why the samples cannot be divided; each with the
    place of the key."""
    data, given = compute.data.object, compute.normalise
    if not isinstance(data, Dataset):
        return
    try:
        if given is not None and given.federated:
            return
        normalise = None if given is None else Normalise(given.scale, given.mean, given.std)
        materialise(data.train, np.arange(1), normalise)
    except NormaliseError as error:
        text = str(error).removeprefix("normalise").removeprefix(":").strip()
        yield ("compute", "normalise"), text
        return
    if logic.hooks or (logic.preset is not None and logic.preset.name != "fedavg"):
        return  # hooks may take samples away before the others are divided
    partition = build("partition", compute.partition)
    try:
        divide(data, partition, clients, derive(seed, "partition"))
    except (PartitionError, DataError) as error:
        yield ("compute", "partition"), str(error)
