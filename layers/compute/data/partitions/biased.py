"""Some clients with one class or two at one end of the labels, the others with many classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels, check_sizes
from layers.compute.data.partitions.shares import fill_up

Held = npt.NDArray[np.bool_]

FEW = 2  # classes that an extremely biased client has at most
TRIES = 1000  # draws of a client's classes; each of them is right with a chance of some percent


@dataclass(frozen=True)
class Biased:
    """``share`` of the clients are extremely biased: one or two classes, far from uniform.

    The others have from half of the classes to all. How far a client is from uniform is the earth
    mover's distance with the labels as points 0 ... C - 1, sum_i |F(i) - (i + 1) / C|. Classes
    are drawn until it is at least ``threshold`` for an extremely biased client, and less for
    another; None is 3 for 10 classes, and in proportion for another number.

    An extremely biased client has as much of each of its classes as of any other, and so do all
    of them; the others share out evenly what is left of each class, and prefer classes that few
    clients have, so that all parts are of nearly one size. Classes that nobody drew go to the
    others, one each, or where there are no others, to anybody.

    Source: the experiments of FedAIM, where each part is 300 images; 50 clients need more than the
    60,000 of MNIST then, so that a part is about 235 here.
    """

    share: float = 0.4
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise PartitionError(f"biased: share must be between 0 and 1, not {self.share}")
        if self.threshold is not None and not 0 < self.threshold < math.inf:
            raise PartitionError(f"biased: threshold must be above 0, not {self.threshold}")

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> list[Indices]:
        """Give each client's indices, in ascending order; raises PartitionError."""
        check_sizes(len(labels), clients, 0 if allow_empty else 1, "biased")
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
        return [np.sort(part) for part in fill_up(mixed, 0 if allow_empty else 1)]

    def _draw(
        self, order: Indices, biased: npt.NDArray[np.bool_], classes: int, rng: np.random.Generator
    ) -> Held:
        """Return which classes each client has, (clients, classes)."""
        threshold = self.threshold
        if threshold is None:
            threshold = 3 * (classes - 1) / 9
        held = np.zeros((len(order), classes), dtype=np.bool_)
        if classes == 1:  # of which nobody is far
            return ~held
        for client in order:
            for _ in range(TRIES):
                held[client] = False
                held[client, _classes(biased[client], held, rng)] = True
                # A hair more, since a distance of 3 may come out below it.
                if (_distance(held[client]) + 1e-9 >= threshold) == biased[client]:
                    break
            else:
                raise PartitionError(
                    f"biased: no client can be so biased, or so little, by threshold "
                    f"{threshold:g} with {classes} classes; change the threshold"
                )
        return held


def _deal(samples: Indices, holders: Indices, parts: list[list[Indices]]) -> None:
    """Share samples out evenly."""
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


def _distance(held: npt.NDArray[np.bool_]) -> float:
    apart = np.cumsum(held / held.sum() - 1 / held.size)[:-1]
    return float(np.abs(apart).sum())
