"""IID: a random permutation of the samples, cut into parts of equal size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.partitions.partition import Indices, Labels, check_sizes


@dataclass(frozen=True)
class Iid:
    """Every client gets random samples of all classes; sizes differ by one sample at most.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.
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
        check_sizes(len(labels), clients, 0 if allow_empty else 1, "iid")
        return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]
