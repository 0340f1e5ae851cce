"""So many classes for each client: a class is divided evenly among the clients that hold it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels, check_sizes
from layers.compute.data.partitions.shares import deal_classes, fill_up


@dataclass(frozen=True)
class LabelQuantity:
    """A client has samples of `per_client` classes: one in turn, and others at random.

    The clients that hold a class divide it evenly. A class that few clients drew gives them more
    samples, so that the clients differ in size; `shards` gives all the same number. A client that
    would have no sample gets one from the client with the most.

    Source: Li et al., "Federated Learning on Non-IID Data Silos", 2022: quantity-based label
    imbalance, #C = k.

    Attributes:
        per_client: how many classes a client has; all of them if there are not so many.
    """

    per_client: int = 2

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise PartitionError(
                f"label-quantity: per_client must be at least 1, not {self.per_client}"
            )

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
        check_sizes(len(labels), clients, 0 if allow_empty else 1, "label-quantity")
        parts = deal_classes(labels, self._holders(labels, clients, rng), clients, rng)
        return [np.sort(part) for part in fill_up(parts, 0 if allow_empty else 1)]

    def for_tests(self, labels: Labels, clients: int, rng: np.random.Generator) -> _Held:
        """Return the rule that gives each client test samples of its own classes."""
        return _Held(self._holders(labels, clients, rng))

    def _holders(
        self, labels: Labels, clients: int, rng: np.random.Generator
    ) -> dict[int, list[int]]:
        """Draw the clients that hold each class."""
        classes = np.unique(labels).tolist()
        if len(classes) > clients * self.per_client:
            raise PartitionError(
                f"label-quantity: {clients} clients cannot hold {len(classes)} classes, "
                f"{self.per_client} each; raise per_client, or use more clients"
            )
        holders: dict[int, list[int]] = {label: [] for label in classes}
        held: list[set[int]] = [set() for _ in range(clients)]  # by client, the same
        unheld = list(classes)
        for turn in range(min(self.per_client, len(classes))):
            for client in range(clients):
                if unheld:
                    label = unheld.pop(0)
                elif turn == 0:
                    label = classes[client % len(classes)]
                else:
                    label = int(rng.choice([one for one in classes if one not in held[client]]))
                holders[label].append(client)
                held[client].add(label)
        return holders


@dataclass(frozen=True, eq=False)
class _Held:
    """The clients that hold each class are known; all clients divide any other class."""

    holders: dict[int, list[int]]

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
        return deal_classes(labels, self.holders, clients, rng)
