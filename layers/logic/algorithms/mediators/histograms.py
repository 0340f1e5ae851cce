"""What clients told of their labels; what is no histogram, or no distance, counts as not told."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from layers.logic.core.selector import SURVEY
from layers.logic.core.state import ServerState

MOST = 1 << 53  # up to here float64 counts exactly
LABELS = "labels"  # the question; all others are for a distance
HISTOGRAM, DISTANCE = "histogram", "distance"


def reported_histograms(answers: Mapping[int, Any], classes: int) -> tuple[list[int], np.ndarray]:
    """Return who told a histogram of `classes` labels, ascending, and float64 (n, classes)."""
    clients = [client for client in sorted(answers) if _is_histogram(answers[client], classes)]
    counts = np.array([answers[client][HISTOGRAM] for client in clients], np.float64)
    return clients, counts.reshape(len(clients), classes)


def told_distances(answers: Mapping[int, Any]) -> tuple[list[int], np.ndarray]:
    """Return who told a distance, ascending, and float64 (n,)."""
    clients = [client for client in sorted(answers) if _is_distance(answers[client])]
    return clients, np.array([answers[client][DISTANCE] for client in clients], np.float64)


def without_others(state: ServerState, question: str, told: Collection[int]) -> ServerState:
    """Return the state with the answers to `question` of those who told alone, and no more of them.

    Whoever did not is asked again in the next round.
    """
    survey, key = state.memory[SURVEY], HISTOGRAM if question == LABELS else DISTANCE
    kept = {client: {key: survey[question][client][key]} for client in told}
    return replace(state, memory={**state.memory, SURVEY: {**survey, question: kept}})


def _is_histogram(answer: Mapping[str, Any], classes: int) -> bool:
    told = answer.get(HISTOGRAM)
    return (
        isinstance(told, np.ndarray)
        and told.shape == (classes,)
        and told.dtype.kind in "iu"
        and bool((told >= 0).all() and (told <= MOST).all())
        and 0 < int(told.astype(np.float64).sum()) <= MOST
    )


def _is_distance(answer: Mapping[str, Any]) -> bool:
    told = answer.get(DISTANCE)
    return isinstance(told, (int, float)) and 0 <= told < math.inf
