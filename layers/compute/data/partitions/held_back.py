"""Samples that are held back from a training split before it is divided, balanced by class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layers.compute.data.partitions.partition import Indices, Labels


@dataclass(frozen=True, eq=False)
class HeldBack:
    """The samples of a training split that are held back, and the rest.

    Each is an array of ascending indices; no sample is in two of them.

    Attributes:
        assets: the samples of each asset, which every client gets, by the asset's name.
        held_out: the samples that the server keeps to train on.
        validation: the samples that evaluate the model after each round.
        rest: the samples that are divided among the clients; None: all of them.
    """

    assets: Mapping[str, Indices]
    held_out: Indices
    validation: Indices
    rest: Indices | None


def hold_back(
    labels: Labels,
    assets: Mapping[str, float],
    held_out: float,
    validation: float,
    seeds: tuple[int, int, int],
) -> HeldBack:
    """Take shares of the samples out, each balanced by class.

    The assets are drawn in order from one random stream, the server's samples after them from a
    second stream, and those for validation last, from a third one. So no draw depends on those that
    follow it.

    Args:
        labels: of all samples, (n,).
        assets: each asset's share of the n samples; a share above 0 is at least one sample, as long
            as there are any.
        held_out: the server's share of the n samples; likewise.
        validation: the share for validation; likewise.
        seeds: those of the three streams.
    """
    left = np.arange(len(labels))
    rng = np.random.default_rng(seeds[0])
    drawn: dict[str, Indices] = {}
    for name, share in assets.items():
        rows = left[draw_balanced(labels[left], _number(share, labels), rng)]
        drawn[name], left = rows, np.setdiff1d(left, rows, assume_unique=True)
    taken: list[Indices] = []
    for share, seed in zip((held_out, validation), seeds[1:], strict=True):
        rng = np.random.default_rng(seed)
        rows = left[draw_balanced(labels[left], _number(share, labels), rng)]
        left = np.setdiff1d(left, rows, assume_unique=True)
        taken.append(rows)
    kept, validated = taken
    return HeldBack(drawn, kept, validated, None if len(left) == len(labels) else left)


def draw_balanced(labels: Labels, number: int, rng: np.random.Generator) -> Indices:
    """Draw equally many samples of each class.

    A class with too few samples gives all of them, and the others give more. If the number is not a
    multiple of the classes, the classes that give one sample more are drawn.

    Args:
        labels: of the samples to draw from, (n,).
        number: how many to draw; at most all of them are drawn.
        rng: the random stream.

    Returns:
        Indices into ``labels``, ascending.
    """
    number = min(number, len(labels))
    kinds, of_kind = np.unique(labels, return_inverse=True)
    quotas = _quotas(np.bincount(of_kind, minlength=len(kinds)), number, rng)
    drawn = [
        rng.permutation(np.flatnonzero(of_kind == kind))[:quota]
        for kind, quota in enumerate(quotas)
    ]
    return np.sort(np.concatenate([np.zeros(0, np.int64), *drawn]))


def held_number(sizes: npt.NDArray[np.int64], share: float) -> npt.NDArray[np.int64]:
    """Return how many of its samples a client holds out, by the numbers of samples of clients.

    Of two or more samples, at least one is held out and at least one is kept.
    """
    wished = np.rint(share * sizes).astype(np.int64)
    return np.asarray(np.clip(wished, np.minimum(sizes - 1, 1), sizes - 1))


def _number(share: float, labels: Labels) -> int:
    return max(round(share * len(labels)), 1) if share > 0 else 0


def _quotas(
    there: npt.NDArray[np.int64], number: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return how many samples each class gives, (classes,): equally many, or all of its samples."""
    order = rng.permutation(len(there))
    quotas = np.zeros(len(there), np.int64)
    while left := number - int(quotas.sum()):
        able = order[quotas[order] < there[order]]
        each, rest = divmod(left, len(able))
        # Single samples come last, because a small class may give less than an equal part.
        more = np.full(len(able), each, np.int64)
        if each == 0:
            more[:rest] = 1
        quotas[able] = np.minimum(quotas[able] + more, there[able])
    return quotas
