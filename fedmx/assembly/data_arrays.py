"""The data of an experiment as plain arrays, for workers that map them instead of reading data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmx.assembly.assembly import Assembly
from layers.compute.data.datasets import Dataset, Raw
from layers.compute.data.partitions.partition import GroupedRows
from layers.compute.data.samples import Samples


@dataclass(frozen=True)
class DataIndex:
    """What a list of arrays holds.

    Attributes:
        name: name of the data set.
        classes: its number of labels.
        shape: shape of one example.
        words: the words of its tokens.
        arrays: the place in the list of each array, by the array's name. The arrays are both
            splits, the rows of all clients one after the other (and where those of each client
            end), the samples on which the global model is evaluated, and those of the assets.
    """

    name: str
    classes: int
    shape: tuple[int, ...]
    words: tuple[str, ...]
    arrays: dict[str, int]


def arrays_of(assembly: Assembly) -> tuple[DataIndex, list[np.ndarray]]:
    """Return the data of an experiment: what there is, and the arrays.

    An array with two names is there once. Of data that are no `Dataset`, whose samples come client
    by client, there are only the samples that the global model is evaluated on.
    """
    dataset = assembly.data.dataset
    named = _of_samples("evaluated", assembly.data.test_samples)
    if isinstance(dataset, Dataset):
        parts = GroupedRows.joined(assembly.parts[0])
        named |= {**_of_raw("train", dataset.train), **_of_raw("test", dataset.test)}
        named["clients.rows"], named["clients.ends"] = parts.rows, parts.ends
    for name, samples in assembly.asset_samples.items():
        named |= _of_samples(f"asset {name}", samples)
    arrays: list[np.ndarray] = []
    places: dict[str, int] = {}
    known: dict[int, int] = {}
    for name, array in named.items():
        places[name] = known.setdefault(id(array), len(arrays))
        if places[name] == len(arrays):
            arrays.append(array)
    words = tuple(dataset.words)
    return DataIndex(dataset.name, dataset.classes, dataset.shape, words, places), arrays


def use_arrays(assembly: Assembly, index: DataIndex, arrays: Sequence[np.ndarray]) -> None:
    """Let an assembly have the data in these arrays, instead of what it has or would read."""
    named = {name: arrays[place] for name, place in index.arrays.items()}
    assets = [name[len("asset ") : -len(".x")] for name in named if _is_asset(name)]
    dataset: Dataset | None = None
    rows: GroupedRows | None = None
    if "train.x" in named:
        dataset = Dataset(
            name=index.name,
            train=_raw("train", named),
            test=_raw("test", named),
            classes=index.classes,
            shape=tuple(index.shape),
            words=tuple(index.words),
        )
        rows = GroupedRows(named["clients.rows"], named["clients.ends"])
    assembly.data.use(_samples("evaluated", named), dataset)
    assembly.use({name: _samples(f"asset {name}", named) for name in assets}, rows)


def _is_asset(name: str) -> bool:
    return name.startswith("asset ") and name.endswith(".x")


def _of_raw(split: str, raw: Raw) -> dict[str, np.ndarray]:
    users = {} if raw.users is None else {f"{split}.users": raw.users}
    return {f"{split}.x": raw.x, f"{split}.y": raw.y, **users}


def _raw(split: str, named: Mapping[str, np.ndarray]) -> Raw:
    return Raw(named[f"{split}.x"], named[f"{split}.y"], named.get(f"{split}.users"))


def _of_samples(what: str, samples: Samples) -> dict[str, np.ndarray]:
    return {f"{what}.x": samples.x, f"{what}.y": samples.y}


def _samples(what: str, named: Mapping[str, np.ndarray]) -> Samples:
    return Samples(named[f"{what}.x"], named[f"{what}.y"])
