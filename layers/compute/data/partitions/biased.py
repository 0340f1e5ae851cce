"""The partition biased: some clients have one or two classes, the others have many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from layers.compute.data.partitions.partition import (
    Indices,
    Labels,
    Rule,
    check_sizes,
    deal_classes,
    fill_up,
)
from layers.compute.errors import PartitionError
from layers.settings import Count, Positive, Share

Held = npt.NDArray[np.bool_]

FEW = 2  # the most classes of an extremely biased client
TRIES = 1000  # the most draws of a client's classes; a few percent of draws succeed


@dataclass(frozen=True)
class Biased(Rule):
    """A share of the clients is extremely biased: one or two classes, far from uniform.

    The other clients have between half of the classes and all of them. A client's classes are drawn
    until its distance from uniform is at least `threshold` for an extremely biased client, and less
    than `threshold` for any other. With `emd` and 10 classes, only the labels 0, 1, 2, 7, 8, 9 and
    the pairs 01, 02, 03, 12, 69, 78, 79, 89 are that far; with `l1`, any one or two labels are.

    Every extremely biased client has the same number of samples of each of its classes. The other
    clients of a class split the remaining samples evenly. They prefer classes that few clients
    hold, so a client has nearly as many samples of one class as of another. Classes that no client
    drew go to the other clients, one each, or to any client if there are no others.

    Source: the experiments of FedAIM. There a client has 300 images of each of its classes. For 50
    clients MNIST's 60,000 images are too few, so here it has 200 to 235, depending on the seed.
    With `samples_per_class: 300` it has all 300, and two clients may have the same ones.

    Attributes:
        share: the share of the clients that are extremely biased.
        threshold: the distance that separates the two kinds of clients; None: 3 for 10 classes and
            proportional to C - 1 for C classes, 1.3 with l1.
        distance: ``"emd"``, the earth mover's distance with the labels as points 0 ... C - 1,
            sum_i |F(i) - (i + 1) / C|, at most (C - 1) / 2; or ``"l1"``, sum_i |p(i) - 1 / C|, at
            most 2 (1 - 1 / C), which does not depend on the labels' order.
        samples_per_class: how many samples of each of its classes every client draws from the whole
            split; None: no sample goes to two clients.
    """

    name = "biased"
    BY_LABEL = True
    share: Share = 0.4
    threshold: Positive | None = None
    distance: Literal["emd", "l1"] = "emd"
    samples_per_class: Count | None = None

    def _divide(
        self, labels: Labels, clients: int, rng: np.random.Generator, least: int
    ) -> list[Indices]:
        classes = int(labels.max(initial=-1)) + 1
        if classes == 0:
            return [np.zeros(0, dtype=np.int64) for _ in range(clients)]
        sizes = np.bincount(labels, minlength=classes)
        order = rng.permutation(clients)
        biased = np.zeros(clients, dtype=np.bool_)
        biased[order[: math.floor(self.share * clients + 0.5)]] = True
        held = self._draw(order, biased, classes, rng)
        takers = order[~biased[order]] if not biased.all() else order
        for place, kind in enumerate(np.flatnonzero(~held.any(0))):
            held[takers[place % len(takers)], kind] = True
        if self.samples_per_class is not None:
            holders = {kind: np.flatnonzero(held[:, kind]).tolist() for kind in range(classes)}
            drawn = deal_classes(labels, holders, clients, rng, self.samples_per_class)
            check_sizes(sum(map(len, drawn)), clients, least, self.name)
            return [np.sort(part) for part in fill_up(drawn, least)]
        equal = int(np.min(sizes // held.sum(0)))
        parts: list[list[Indices]] = [[] for _ in range(clients)]
        for kind in np.flatnonzero(sizes):
            samples = rng.permutation(np.flatnonzero(labels == kind))
            others = np.flatnonzero(held[:, kind] & ~biased)
            if len(others):
                few = np.flatnonzero(held[:, kind] & biased)
                first, rest = np.split(samples, [equal * len(few)])
                _deal(first, few, parts)
                _deal(rest, others, parts)
            else:
                _deal(samples, np.flatnonzero(held[:, kind]), parts)
        mixed = [rng.permutation(np.concatenate([*part, order[:0]])) for part in parts]
        return [np.sort(part) for part in fill_up(mixed, least)]

    def _draw(
        self, order: Indices, biased: npt.NDArray[np.bool_], classes: int, rng: np.random.Generator
    ) -> Held:
        """Return which classes each client has, (clients, classes)."""
        held = np.zeros((len(order), classes), dtype=np.bool_)
        if classes == 1:  # every client is uniform
            return ~held
        distance = DISTANCES[self.distance]
        threshold = self._threshold(classes)
        farthest = distance(np.arange(classes) == 0)  # a client with the first class alone
        if biased.any() and threshold > farthest + 1e-9:
            raise PartitionError(
                f"biased: threshold {threshold:g} is too high: with {self.distance} and {classes} "
                f"classes the distance from uniform is at most {farthest:g}; lower it"
            )
        for client in order:
            for _ in range(TRIES):
                held[client] = False
                held[client, _classes(biased[client], held, rng)] = True
                # Rounding may make a distance of 3 slightly smaller.
                if (distance(held[client]) + 1e-9 >= threshold) == biased[client]:
                    break
            else:
                raise PartitionError(
                    f"biased: {TRIES} draws gave no client's classes with threshold {threshold:g} "
                    f"of {classes} classes; change the threshold"
                )
        return held

    def _threshold(self, classes: int) -> float:
        """Return the threshold; the defaults equal those of the selector `fedaim`."""
        if self.threshold is not None:
            return self.threshold
        return 1.3 if self.distance == "l1" else 3 * (classes - 1) / 9


def _deal(samples: Indices, holders: Indices, parts: list[list[Indices]]) -> None:
    """Split samples evenly among their holders, and add each part to the holder's parts."""
    if len(holders):
        for client, part in zip(holders, np.array_split(samples, len(holders)), strict=True):
            parts[client].append(part)


def _classes(biased: np.bool_, held: Held, rng: np.random.Generator) -> Indices:
    classes = held.shape[1]
    if biased:
        return rng.permutation(classes)[: rng.integers(1, min(FEW, classes) + 1)]
    several = int(rng.integers(-(-classes // 2), classes + 1))
    order = rng.permutation(classes)
    rarest = np.argsort(held.sum(0)[order], kind="stable")[:several]
    return np.asarray(order[rarest])


def _earth_movers(held: npt.NDArray[np.bool_]) -> float:
    apart = np.cumsum(held / held.sum() - 1 / held.size)[:-1]
    return float(np.abs(apart).sum())


def _l1(held: npt.NDArray[np.bool_]) -> float:
    return float(np.abs(held / held.sum() - 1 / held.size).sum())


DISTANCES: Mapping[str, Callable[[npt.NDArray[np.bool_]], float]] = {
    "emd": _earth_movers,
    "l1": _l1,
}
"""The distances from uniform of a client with equally many samples of each of its classes."""
