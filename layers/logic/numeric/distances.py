"""How far a distribution of labels is from another: earth mover's, L1, Kullback-Leibler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]


def shares(counts: np.ndarray) -> np.ndarray:
    """Return float64 (..., C): what part of each histogram each label is."""
    return np.asarray(counts / counts.sum(-1, keepdims=True))


def uniform(classes: int) -> np.ndarray:
    """Return float64 (C,): every label alike."""
    return np.full(classes, 1 / classes)


def earth_movers(counts: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return sum_i |F(i) - F_ref(i)| of histograms (..., C), the labels as points 0 ... C - 1.

    The earth mover's distance (1-D Wasserstein) with the difference of two labels as the way from
    one to the other: at most (C - 1) / 2 from uniform. It depends on how labels are numbered.
    """
    apart = np.cumsum(shares(counts) - reference, axis=-1)[..., :-1]
    return np.asarray(np.abs(apart).sum(-1))


def l1(counts: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return sum_i |p(i) - p_ref(i)| of histograms (..., C): at most 2, whatever the numbering.

    Zhao et al. 2018, "Federated Learning with Non-IID Data", section 3.2.
    """
    return np.asarray(np.abs(shares(counts) - reference).sum(-1))


def kullback_leibler(counts: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return sum_i p(i) ln(p(i) / p_ref(i)) of histograms (..., C); no reference may be zero."""
    p = shares(counts)
    return np.asarray((p * np.log((p + (p == 0)) / reference)).sum(-1))


DISTANCES: Mapping[str, Distance] = {"emd": earth_movers, "l1": l1}
"""The measures of a client's bias."""

USUAL_CLASSES = 10


def usual_threshold(distance: str, classes: int) -> float:
    """Return from where on a client is extremely biased, if nothing else is said.

    By the earth mover's distance 3 for 10 classes, in proportion for another number; 1.3 by L1.
    """
    return 1.3 if distance == "l1" else 3.0 * (classes - 1) / (USUAL_CLASSES - 1)
