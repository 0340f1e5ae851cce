"""Partitions by label: shards, a fixed number of classes for each client, Dirichlet shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.arithmetic import total
from layers.compute.data.partitions.partition import (
    Concentration,
    Indices,
    Labels,
    Partition,
    Rule,
    cut,
    cut_sizes,
    deal_classes,
    draw_shares,
    fill_up,
)
from layers.compute.errors import PartitionError
from layers.settings import Count, WholeNumber

Shares = list[npt.NDArray[np.float64]]
"""The clients' shares of each class, (clients,) each."""


@dataclass(frozen=True)
class Shards(Rule):
    """Each client gets `per_client` random shards, of `per_client * clients` consecutive ones.

    The samples are sorted by label and cut into shards. With two shards most clients have two
    labels. 60,000 samples among 100 clients are 200 shards of 300. If the shards cannot be equal,
    the first ones have one sample more.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.

    Attributes:
        per_client: how many shards a client gets.
    """

    name = "shards"
    BY_LABEL = True
    per_client: Count = 2

    @property
    def _least(self) -> int:
        return self.per_client

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        return self.deal(labels, rng.permutation(self.per_client * clients))

    def deal(self, labels: Labels, permutation: Indices) -> list[Indices]:
        """Return each client's indices, with the shards dealt in this order."""
        # Stable, so that the split depends on the samples' order, not on the method of sorting.
        shards = np.array_split(np.argsort(labels, kind="stable"), len(permutation))
        hands = permutation.reshape(-1, self.per_client)
        return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


@dataclass(frozen=True)
class OneClass(Rule):
    """Client i has samples of class `i mod classes` alone; its clients divide a class evenly.

    If a class has fewer samples than clients, the clients without a sample go to the class that has
    the most samples for each of its clients. There must be at least as many clients as classes.
    """

    name = "one-class"
    BY_LABEL = True

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        classes, sizes = np.unique(labels, return_counts=True)
        if len(classes) > clients:
            raise PartitionError(
                f"one-class: {clients} clients cannot hold {len(classes)} classes, one each; "
                "use more clients, or the partition shards"
            )
        if len(classes) == 0:
            return [np.zeros(0, dtype=np.int64) for _ in range(clients)]
        kinds = np.arange(clients) % len(classes)
        if least:
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
class LabelQuantity(Rule):
    """Each client holds `per_client` classes: one in turn, the others at random.

    Clients that hold a class split its samples evenly. A class that few clients drew gives each of
    them more samples, so clients differ in size; `shards` gives all the same number. A client that
    would have no sample gets one from the client with the most. With `samples_per_class` a client
    draws its samples from all of a class, so that two clients may have the same ones.

    Source: Li et al., "Federated Learning on Non-IID Data Silos", 2022: quantity-based label
    imbalance, #C = k.

    Attributes:
        per_client: how many classes a client holds; all of them if there are fewer.
        samples_per_class: how many samples of each of its classes a client draws from the whole
            split; None: the clients split each class.
    """

    name = "label-quantity"
    BY_LABEL = True
    per_client: Count = 2
    samples_per_class: Count | None = None

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        holders = self._holders(labels, clients, rng)
        parts = deal_classes(labels, holders, clients, rng, self.samples_per_class)
        return [np.sort(part) for part in fill_up(parts, least)]

    def for_tests(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Return the rule that gives each client test samples of its own classes."""
        return _KnownHolders(self._holders(labels, clients, rng), self.samples_per_class)

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
        held: list[set[int]] = [set() for _ in range(clients)]  # the same, by client
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
class _KnownHolders(Rule):
    """The clients that hold each class are known; all clients hold any other class."""

    name = LabelQuantity.name
    holders: Mapping[int, list[int]]
    each: int | None

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        return deal_classes(labels, self.holders, clients, rng, self.each)


@dataclass(frozen=True)
class Dirichlet(Rule):
    """For each class, the clients' proportions are drawn from Dir(alpha, ..., alpha).

    A small `alpha` gives clients of very different sizes with one or two classes; a large `alpha`
    is close to IID. A client with fewer than `min_samples` gets samples from the client with the
    most. Proportions are never drawn again, so this always ends.

    Source: Yurochkin et al., "Bayesian Nonparametric Federated Learning of Neural Networks", 2019,
    section 4; Li et al., "Federated Learning on Non-IID Data Silos", 2022, "Label Distribution
    Skew". `self_balancing` is not in their texts, but in the code: NIID-Bench's `partition_data`
    and Flower's `niid_bench` (Flower Datasets uses this word). Both draw all proportions again
    until every client has 10 samples; `min_samples: 10` moves samples instead.

    Attributes:
        alpha: the concentration.
        min_samples: the fewest training samples of a client.
        self_balancing: whether a client with n / clients samples or more gets no samples of the
            classes that follow: its share of them is 0, and the other clients' shares are divided
            by their sum.
    """

    name = "dirichlet"
    BY_LABEL = True
    alpha: Concentration = 0.5
    min_samples: WholeNumber = 1
    self_balancing: bool = False

    @property
    def _least(self) -> int:
        return self.min_samples

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        return fill_up(
            _deal_shares(labels, self._shares(labels, clients, rng), clients, rng), least
        )

    def for_tests(self, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
        """Return the rule for the test split; see `DecidesByTraining`."""
        return _KnownShares(self._shares(labels, clients, rng)) if self.self_balancing else self

    def _shares(self, labels: Labels, clients: int, rng: np.random.Generator) -> Shares:
        sizes = np.bincount(labels)
        drawn = [draw_shares(self.alpha, clients, rng) for _ in sizes]
        return _balanced(drawn, sizes, clients) if self.self_balancing else drawn


@dataclass(frozen=True, eq=False)
class _KnownShares(Rule):
    """The clients' shares of each class are known; they have equal shares of any other class."""

    name = Dirichlet.name
    shares: Shares

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        others = int(labels.max(initial=-1)) + 1 - len(self.shares)
        shares = self.shares + [np.full(clients, 1 / clients)] * others
        return _deal_shares(labels, shares, clients, rng)


def _balanced(drawn: Shares, sizes: Indices, clients: int) -> Shares:
    """Return the shares of each class, 0 for clients that have enough samples before it."""
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
    """Return each client's indices, ascending, with the classes divided in these shares."""
    parts: list[list[Indices]] = [[np.zeros(0, dtype=np.int64)] for _ in range(clients)]
    for label in range(int(labels.max(initial=-1)) + 1):
        samples = rng.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, cut(samples, shares[label]), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]
