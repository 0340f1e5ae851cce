"""Dirichlet: each class is divided among the clients in random proportions."""

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
class Dirichlet:
    """For each class, the clients' proportions are drawn from Dir(alpha, ..., alpha).

    A small `alpha` gives clients of very different sizes with one or two classes; a large `alpha`
    is close to IID. A client with fewer than `min_samples` gets samples from the client with the
    most. Nothing is drawn again, so this always ends.

    Source: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", 2019,
    section 4; Li et al., "Federated Learning on Non-IID Data Silos", 2022.

    Attributes:
        alpha: the concentration, from 0.001 to 1,000,000.
        min_samples: the fewest training samples of a client.
    """

    alpha: float = 0.5
    min_samples: int = 1

    def __post_init__(self) -> None:
        check_alpha(self.alpha, "dirichlet")
        check_least(self.min_samples, "dirichlet: min_samples")

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
        check_sizes(len(labels), clients, least, "dirichlet")
        classes = int(labels.max(initial=-1)) + 1
        shares = [draw_shares(self.alpha, clients, rng) for _ in range(classes)]
        parts: list[list[Indices]] = [[] for _ in range(clients)]
        for label in range(classes):
            samples = rng.permutation(np.flatnonzero(labels == label))
            for part, piece in zip(parts, cut(samples, shares[label]), strict=True):
                part.append(piece)
        empty = np.zeros(0, dtype=np.int64)
        return fill_up([np.sort(np.concatenate([empty, *part])) for part in parts], least)
