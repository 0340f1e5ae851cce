"""Distances between label distributions: earth mover's, L1 and Kullback-Leibler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from layers.arithmetic import log

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]


def shares(counts: np.ndarray) -> np.ndarray:
    """Return float64 (..., C): the share of each label in each histogram."""
    return np.asarray(counts / counts.sum(-1, keepdims=True))


def uniform(classes: int) -> np.ndarray:
    """Return float64 (C,): the same share for every label."""
    return np.full(classes, 1 / classes)


def earth_movers(counts: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return sum_i |F(i) - F_ref(i)| of histograms (..., C), the labels as points 0 ... C - 1.

    This is the earth mover's distance (1-D Wasserstein) with the difference of two labels as their
    distance: at most (C - 1) / 2 from uniform. It depends on the order of the labels.
    """
    apart = np.cumsum(shares(counts) - reference, axis=-1)[..., :-1]
    return np.asarray(np.abs(apart).sum(-1))


def l1(counts: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return sum_i |p(i) - p_ref(i)| of histograms (..., C), at most 2 in any order of the labels.

    Zhao et al. 2018, "Federated Learning with Non-IID Data", section 3.2.
    """
    return np.asarray(np.abs(shares(counts) - reference).sum(-1))


def kullback_leibler(counts: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return sum_i p(i) ln(p(i) / p_ref(i)) of histograms (..., C); no p_ref(i) may be zero."""
    p = shares(counts)
    return np.asarray((p * log((p + (p == 0)) / reference)).sum(-1))


DISTANCES: Mapping[str, Distance] = {"emd": earth_movers, "l1": l1}
"""The measures of a client's bias, by their names in an experiment file."""

USUAL_CLASSES = 10


def farthest(distance: str, classes: int, reference: str) -> float:
    """Return the largest possible distance of a client's labels from the reference.

    The reference is `uniform` or `pooled`. The pooled labels can be all of one class that the
    client does not have.
    """
    if reference == "pooled":
        return 2.0 if distance == "l1" else classes - 1.0
    return 2 * (1 - 1 / classes) if distance == "l1" else (classes - 1) / 2


def usual_threshold(distance: str, classes: int) -> float:
    """Return the default distance above which a client is extremely biased.

    The earth mover's distance has 3 for 10 classes, and in proportion for other numbers of classes;
    L1 has 1.3.
    """
    return 1.3 if distance == "l1" else 3.0 * (classes - 1) / (USUAL_CLASSES - 1)
