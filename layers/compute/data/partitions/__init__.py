"""The partitions that an experiment can name.

To add one, write its class with a `name` in a module of this package. A partition sees labels and
users, but no inputs and no model.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module

import numpy as np

from layers.compute.data.dataset import Dataset
from layers.compute.data.partitions.partition import (
    DecidesByTraining,
    Indices,
    Labels,
    Partition,
    checked,
)
from layers.compute.errors import PartitionError


def _named() -> dict[str, type[Partition]]:
    """Return the public classes of this package's modules that have a name, by that name."""
    modules = [import_module(f"{__name__}.{one.name}") for one in pkgutil.iter_modules(__path__)]
    classes = [
        one
        for module in modules
        for name, one in vars(module).items()
        if isinstance(one, type) and one.__module__ == module.__name__ and name[0] != "_"
    ]
    return dict(sorted((vars(one)["name"], one) for one in classes if "name" in vars(one)))


PARTITIONS = _named()


def divide(
    dataset: Dataset,
    partition: Partition,
    clients: int,
    seed: int | Sequence[int] | np.random.SeedSequence,
    rows: Indices | None = None,
) -> tuple[Sequence[Indices], Sequence[Indices]]:
    """Return each client's indices into `dataset.train`, and each client's into `dataset.test`.

    Both splits are divided by one rule and one seed. A client's test part has the same label mix,
    users and share as its training part, as far as the partition supports it. A test part may be
    empty, a training part may not.

    Args:
        dataset: the data set to divide.
        partition: the rule.
        clients: how many clients there are.
        seed: for the partition's draws.
        rows: indices into the training split; only these are divided. None: all.

    Raises:
        PartitionError: the samples cannot be divided so, or the partition returned something else.
    """
    if getattr(partition, "BY_LABEL", False) and not dataset.targets.classes:
        raise PartitionError(
            f"{getattr(partition, 'name', type(partition).__name__)} divides by classes, and "
            f"{dataset.name} has {dataset.targets}; use iid, by-user, quantity or normal-sizes"
        )
    test = dataset.test
    labels, users = dataset.train.y, dataset.train.users
    if rows is not None:
        labels, users = labels[rows], None if users is None else users[rows]
    parts = checked(partition, labels, users, clients, np.random.default_rng(seed))
    if isinstance(partition, DecidesByTraining):
        partition = partition.for_tests(labels, clients, np.random.default_rng(seed))
    return (
        parts if rows is None else [rows[part] for part in parts],
        checked(
            partition, test.y, test.users, clients, np.random.default_rng(seed), allow_empty=True
        ),
    )
