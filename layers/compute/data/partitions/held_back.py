"""Balanced samples that are held back from a training split before it is divided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.compute.data.partitions.partition import Indices, Labels


@dataclass(frozen=True, eq=False)
class HeldBack:
    """The samples of a training split that are held back, and the rest.

    Each is an array of indices, ascending; no sample is in two of them.

    Attributes:
        shared: given to every client.
        held_out: kept by the server.
        rest: divided among the clients; None: all samples, because none are held back.
    """

    shared: Indices
    held_out: Indices
    rest: Indices | None


def hold_back(
    labels: Labels, shared: float, held_out: float, seed_shared: int, seed_held_out: int
) -> HeldBack:
    """Return the samples to hold back, each share balanced over the classes, and the rest.

    `shared` is drawn first. Each share has a seed of its own, so `shared` is the same with or
    without `held_out`.

    Args:
        labels: of the training split, (n,).
        shared: the share of the n samples that every client is given; at least one sample if
            above 0.
        held_out: the share of the n samples that the server keeps; at least one sample if above 0.
        seed_shared: for the draw of `shared`.
        seed_held_out: for the draw of `held_out`.
    """
    given = draw_balanced(labels, _number(shared, labels), np.random.default_rng(seed_shared))
    left = np.setdiff1d(np.arange(len(labels)), given, assume_unique=True)
    rng = np.random.default_rng(seed_held_out)
    kept = left[draw_balanced(labels[left], _number(held_out, labels), rng)]
    if not len(given) and not len(kept):
        return HeldBack(given, kept, None)
    return HeldBack(given, kept, np.setdiff1d(left, kept, assume_unique=True))


def draw_balanced(labels: Labels, number: int, rng: np.random.Generator) -> Indices:
    """Return `number` random samples, with the same number of each class as far as possible.

    A class with too few samples gives all of them, and the others give more. Which classes give
    one sample more than others is drawn.

    Returns:
        Indices into `labels` (n,), ascending; all n if `number` is larger.
    """
    number = min(number, len(labels))
    kinds, of_kind = np.unique(labels, return_inverse=True)
    quotas = _quotas(np.bincount(of_kind, minlength=len(kinds)), number, rng)
    drawn = [
        rng.permutation(np.flatnonzero(of_kind == kind))[:quota]
        for kind, quota in enumerate(quotas)
    ]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *drawn]))


def _number(share: float, labels: Labels) -> int:
    return max(round(share * len(labels)), 1) if share > 0 else 0


def _quotas(
    there: npt.NDArray[np.int64], number: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return how many samples each class gives, (classes,): equally many, or all that it has."""
    order = rng.permutation(len(there))
    quotas = np.zeros(len(there), np.int64)
    while left := number - int(quotas.sum()):
        able = order[quotas[order] < there[order]]
        each, rest = divmod(left, len(able))
        # Single samples come last: before that, a small class may give less than its part.
        more = np.full(len(able), each, np.int64)
        if each == 0:
            more[:rest] = 1
        quotas[able] = np.minimum(quotas[able] + more, there[able])
    return quotas
