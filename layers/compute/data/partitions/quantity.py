"""Quantity skew: all clients have random samples of all classes, but very different numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.partitions.partition import Indices, Labels, check_sizes
from layers.compute.data.partitions.shares import (
    check_alpha,
    check_least,
    cut,
    draw_shares,
    fill_up,
)


@dataclass(frozen=True)
class Quantity:
    """The clients' shares of the data are drawn from Dir(alpha, ..., alpha); their samples are IID.

    With a small `alpha`, few clients have most of the data. A client with fewer than `min_samples`
    gets samples from the client with the most.

    Source: Li et al., "Federated Learning on Non-IID Data Silos", 2022.

    Attributes:
        alpha: the concentration, from 0.001 to 1,000,000.
        min_samples: the fewest training samples of a client.
    """

    alpha: float = 0.5
    min_samples: int = 1

    def __post_init__(self) -> None:
        check_alpha(self.alpha, "quantity")
        check_least(self.min_samples, "quantity: min_samples")

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
        least = 0 if allow_empty else self.min_samples
        check_sizes(len(labels), clients, least, "quantity")
        shares = draw_shares(self.alpha, clients, rng)
        parts = cut(rng.permutation(len(labels)), shares)
        return [np.sort(part) for part in fill_up(parts, least)]
