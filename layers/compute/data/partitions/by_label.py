"""Partitions by label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.arithmetic import total
from layers.compute.data.partitions.partition import (
    Indices,
    Labels,
    Partition,
    check_alpha,
    check_least,
    check_sizes,
    cut,
    cut_sizes,
    deal_classes,
    draw_shares,
    fill_up,
)
from layers.compute.errors import PartitionError


@dataclass(frozen=True)
class Shards:
    """Each client gets `per_client` random shards, of `per_client * clients` consecutive ones.

    With 2 shards most clients have two labels. 60,000 samples among 100 clients are 200 shards of
    300. When the shards cannot be equal, the first ones have one sample more.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.

    Attributes:
        per_client: how many shards a client gets.
    """

    per_client: int = 2

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise PartitionError(f"shards: per_client must be at least 1, not {self.per_client}")

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> list[Indices]:
        """Return each client's indices, shard after shard; see `Partition.split`.

        There must be a sample for every shard, unless `allow_empty`.
        """
        check_sizes(len(labels), clients, 0 if allow_empty else self.per_client, "shards")
        return self.deal(labels, rng.permutation(self.per_client * clients))

    def deal(self, labels: Labels, permutation: Indices) -> list[Indices]:
        """Return each client's indices, when the shards are given out in this order."""
        # Stable, so that the split depends on the samples' order, not on the method of sorting.
        shards = np.array_split(np.argsort(labels, kind="stable"), len(permutation))
        hands = permutation.reshape(-1, self.per_client)
        return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


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


Shares = list[npt.NDArray[np.float64]]  # of each class, the clients' shares (clients,)


@dataclass(frozen=True)
class Dirichlet:
    """For each class, the clients' proportions are drawn from Dir(alpha, ..., alpha).

    A small `alpha` gives clients of very different sizes with one or two classes; a large `alpha`
    is close to IID. A client with fewer than `min_samples` gets samples from the client with the
    most. Nothing is drawn again, so this always ends.

    Source: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", 2019,
    section 4; Li et al., "Federated Learning on Non-IID Data Silos", 2022, "Label Distribution
    Skew". `self_balancing` is not in their texts, but in the code: NIID-Bench's `partition_data`
    and Flower's `niid_bench` (the word is that of Flower Datasets). These two draw all proportions
    again until every client has 10 samples; `min_samples: 10` fills up instead.

    Attributes:
        alpha: the concentration, from 0.001 to 1,000,000.
        min_samples: the fewest training samples of a client.
        self_balancing: whether a client that has an even part of the n samples, n / clients or
            more, gets nothing more of the classes that follow: its share of them is 0, and the
            other clients' shares are divided by their sum.
    """

    alpha: float = 0.5
    min_samples: int = 1
    self_balancing: bool = False

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
        return fill_up(
            _deal_shares(labels, self._shares(labels, clients, rng), clients, rng), least
        )

    def for_tests(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Return the rule for the test split; see `DecidesByTraining`."""
        return _Shared(self._shares(labels, clients, rng)) if self.self_balancing else self

    def _shares(self, labels: Labels, clients: int, rng: np.random.Generator) -> Shares:
        sizes = np.bincount(labels)
        drawn = [draw_shares(self.alpha, clients, rng) for _ in sizes]
        return _balanced(drawn, sizes, clients) if self.self_balancing else drawn


@dataclass(frozen=True, eq=False)
class _Shared:
    """The clients' shares of each class are known; those of any other class are equal."""

    shares: Shares

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
        others = int(labels.max(initial=-1)) + 1 - len(self.shares)
        shares = self.shares + [np.full(clients, 1 / clients)] * others
        return _deal_shares(labels, shares, clients, rng)


def _balanced(drawn: Shares, sizes: Indices, clients: int) -> Shares:
    """Return the shares of each class without those of clients that have enough before it."""
    enough = int(sizes.sum()) / clients
    held = np.zeros(clients, np.int64)
    shares = []
    for share, size in zip(drawn, sizes.tolist(), strict=True):
        if size:
            takes = held < enough
            left = share * takes
            whole = total(left)
            # A small alpha may have given everything to a client that has enough.
            share = left / whole if whole > 0 else takes / takes.sum()
            held += cut_sizes(size, share)
        shares.append(share)
    return shares


def _deal_shares(
    labels: Labels, shares: Shares, clients: int, rng: np.random.Generator
) -> list[Indices]:
    """Return each client's indices, ascending, when the classes are divided in these shares."""
    parts: list[list[Indices]] = [[np.zeros(0, dtype=np.int64)] for _ in range(clients)]
    for label in range(int(labels.max(initial=-1)) + 1):
        samples = rng.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, cut(samples, shares[label]), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]
