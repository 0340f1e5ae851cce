"""Clients that have so many samples of each label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.logic.quadratic import Quadratic, bowl


def labels_of(counts: Sequence[float]) -> list[int]:
    """Return the labels that a client with this histogram has."""
    return np.repeat(np.arange(len(counts)), np.array(counts, np.int64)).tolist()


def counted(histograms: Sequence[Sequence[float]], size: int = 3) -> dict[int, Quadratic]:
    """Return a client for each histogram, each with another target."""
    rng = np.random.default_rng(3)
    return {
        client: bowl(rng.normal(size=size), int(sum(counts)), labels=labels_of(counts), c=0.2)
        for client, counts in enumerate(histograms)
    }


ONE_CLASS = {kind: [40 if label == kind else 0 for label in range(10)] for kind in range(10)}
EVEN = [4] * 10
