"""One class for each client: the most uneven split of labels that there is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels, check_sizes
from layers.compute.data.partitions.shares import deal_classes


@dataclass(frozen=True)
class OneClass:
    """Client i has samples of class `i mod classes` alone; its clients divide a class evenly.

    If a class has fewer samples than clients, the clients without a sample go to the class that has
    the most samples for each of its clients. There must be at least as many clients as classes.
    """

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> list[Indices]:
        """Return each client's indices, in ascending order; see `Partition.split`."""
        check_sizes(len(labels), clients, 0 if allow_empty else 1, "one-class")
        classes, sizes = np.unique(labels, return_counts=True)
        if len(classes) > clients:
            raise PartitionError(
                f"one-class: {clients} clients cannot hold {len(classes)} classes, one each; "
                "use more clients, or the partition shards"
            )
        if len(classes) == 0:
            return [np.zeros(0, dtype=np.int64) for _ in range(clients)]
        kinds = np.arange(clients) % len(classes)
        if not allow_empty:
            _spare(kinds, sizes)
        holders = {
            label: np.flatnonzero(kinds == kind).tolist()
            for kind, label in enumerate(classes.tolist())
        }
        return deal_classes(labels, holders, clients, rng)


def _spare(kinds: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
    """Move clients, in place, away from classes that have fewer samples than clients."""
    holders = np.bincount(kinds, minlength=len(sizes))
    for kind in np.flatnonzero(holders > sizes):
        for client in np.flatnonzero(kinds == kind)[sizes[kind] :]:
            # There are at least as many samples as clients, so some class has room.
            richest = int(np.argmax(np.where(holders < sizes, sizes / holders, 0)))
            kinds[client] = richest
            holders[kind] -= 1
            holders[richest] += 1
