"""Normal sizes: IID samples; how many a client has is drawn from a normal distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels, check_sizes
from layers.compute.data.partitions.shares import check_least, cut, fill_up


@dataclass(frozen=True)
class NormalSizes:
    """A client has round(mean (1 + spread z)) samples, z standard normal, but at least `least`.

    Samples that are left over are not used. Without a `mean`, and for the test split, all samples
    are divided in these proportions.

    Source: the setting of the knapsack papers, which do not give the mean and the deviation.

    Attributes:
        mean: the mean number of a client's training samples.
        spread: the deviation of that number, as a share of the mean.
        least: the fewest training samples of a client.
    """

    mean: float | None = None
    spread: float = 0.25
    least: int = 1

    def __post_init__(self) -> None:
        if self.mean is not None and not 1 <= self.mean < math.inf:
            raise PartitionError(f"normal-sizes: mean must be 1 or more, not {self.mean}")
        if not 0 <= self.spread < math.inf:
            raise PartitionError(f"normal-sizes: spread must be 0 or more, not {self.spread}")
        check_least(self.least, "normal-sizes: least")

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
        least = 0 if allow_empty else self.least
        check_sizes(len(labels), clients, least, "normal-sizes")
        sizes = np.maximum(1.0 + self.spread * rng.standard_normal(clients), 0.01)
        order = rng.permutation(len(labels))
        if allow_empty or self.mean is None:
            parts = cut(order, sizes / sizes.sum())
            return [np.sort(part) for part in fill_up(parts, least)]
        ends = np.cumsum(np.maximum(np.rint(self.mean * sizes), self.least)).astype(np.int64)
        if ends[-1] > len(labels):
            raise PartitionError(
                f"normal-sizes: {clients} clients drew {ends[-1]} samples of {len(labels)}; lower "
                "the mean, or use fewer clients"
            )
        return [np.sort(part) for part in np.split(order, ends)[:clients]]
