"""Partitions that do not look at labels: IID, with random sizes, and by user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from layers.compute.data.partitions.partition import (
    Concentration,
    GroupedRows,
    Indices,
    Labels,
    Rule,
    check_sizes,
    cut,
    draw_shares,
    fill_up,
)
from layers.compute.errors import PartitionError
from layers.settings import FINITE, NotNegative, Settings, WholeNumber


@dataclass(frozen=True)
class Iid(Rule):
    """Every client gets random samples of all classes; sizes differ by one sample at most.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.
    """

    name = "iid"

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]


@dataclass(frozen=True)
class Quantity(Rule):
    """The clients' shares of the data are drawn from Dir(alpha, ..., alpha); their samples are IID.

    With a small `alpha`, few clients have most of the data. A client with fewer than `min_samples`
    gets samples from the client with the most.

    Source: Li et al., "Federated Learning on Non-IID Data Silos", 2022.

    Attributes:
        alpha: the concentration.
        min_samples: the fewest training samples of a client.
    """

    name = "quantity"
    alpha: Concentration = 0.5
    min_samples: WholeNumber = 1

    @property
    def _least(self) -> int:
        return self.min_samples

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        shares = draw_shares(self.alpha, clients, rng)
        parts = cut(rng.permutation(len(labels)), shares)
        return [np.sort(part) for part in fill_up(parts, least)]


@dataclass(frozen=True)
class NormalSizes(Settings):
    """A client has round(mean (1 + spread z)) samples, z standard normal, but at least `least`.

    The remaining samples are not used. Without a `mean`, and for the test split, all samples are
    divided in these proportions.

    Source: the setting of the knapsack papers, which do not give the mean and the deviation.

    Attributes:
        mean: the mean number of a client's training samples.
        spread: the deviation of that number, as a share of the mean.
        least: the fewest training samples of a client.
    """

    refusal = PartitionError
    name: ClassVar[str] = "normal-sizes"
    mean: Annotated[float, Ge(1), FINITE] | None = None
    spread: NotNegative = 0.25
    least: WholeNumber = 1

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


@dataclass(frozen=True)
class ByUser:
    """All samples of user u go to client `u mod clients`; nothing is drawn at random.

    With as many clients as users, each client is one user. With fewer clients, the numbers of users
    of two clients differ by one at most. Users are numbered as in the data set, so a client has the
    training and the test samples of the same users.

    Source: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018.
    """

    name: ClassVar[str] = "by-user"

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> Sequence[Indices]:
        """Return each client's indices, in ascending order; see `Partition.split`."""
        check_sizes(len(labels), clients, 0, "by-user")
        if users is None:
            # Only a client's part of the test split may be empty.
            split, missing = ("test ", "") if allow_empty else ("", "users_train and ")
            raise PartitionError(
                f"by-user: the data set does not give the user of each {split}sample; add "
                f"{missing}users_test, one user for each sample, or use another partition"
            )
        parts = GroupedRows.by_group(users % clients, clients)
        empty = int((parts.sizes == 0).sum())
        if empty and not allow_empty:
            raise PartitionError(
                f"by-user: {len(np.unique(users))} users leave {empty} of {clients} clients "
                "without a sample; use fewer clients"
            )
        return parts
