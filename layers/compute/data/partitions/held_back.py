"""Balanced samples that are taken out of a training split before it is divided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.compute.data.partitions.partition import Indices, Labels


@dataclass(frozen=True, eq=False)
class HeldBack:
    """Indices into a training split, ascending; no sample is in two of them.

    Attributes:
        shared: what every client is given.
        held_out: what the server keeps for itself.
        rest: what is divided among the clients; None: all samples, since none were taken out.
    """

    shared: Indices
    held_out: Indices
    rest: Indices | None


def hold_back(
    labels: Labels, shared: float, held_out: float, seed_shared: int, seed_held_out: int
) -> HeldBack:
    """Take shares of the samples with these ``labels`` (n,) out, each balanced over the classes.

    Both are shares of all n samples; one above 0 gives one sample at least. Each has a seed of
    its own, so that the one is drawn first and the same whether there is the other or not.
    """
    given = draw_balanced(labels, _number(shared, labels), np.random.default_rng(seed_shared))
    left = np.setdiff1d(np.arange(len(labels)), given, assume_unique=True)
    rng = np.random.default_rng(seed_held_out)
    kept = left[draw_balanced(labels[left], _number(held_out, labels), rng)]
    if not len(given) and not len(kept):
        return HeldBack(given, kept, None)
    return HeldBack(given, kept, np.setdiff1d(left, kept, assume_unique=True))


def draw_balanced(labels: Labels, number: int, rng: np.random.Generator) -> Indices:
    """Draw ``number`` of the samples, as equally many of each class as the classes go.

    A class with fewer samples than its part gives all that it has, and the others give more; which
    classes give one more than others is drawn. Gives indices into ``labels`` (n,), ascending; all
    of them if there are not more.
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
    """Return how many each class gives, (classes,): the same level for all that have as many."""
    order = rng.permutation(len(there))
    quotas = np.zeros(len(there), np.int64)
    while left := number - int(quotas.sum()):
        able = order[quotas[order] < there[order]]
        each, rest = divmod(left, len(able))
        # One more only when less than a round is left, or a class that has few would decide it.
        more = np.full(len(able), each, np.int64)
        if each == 0:
            more[:rest] = 1
        quotas[able] = np.minimum(quotas[able] + more, there[able])
    return quotas
