"""Statistics of clients' samples: sums of each feature, from which those of all clients follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.logic.core.engine import Data
from layers.logic.core.messages import Slot

BINS = 64
"""The bins of a feature's histogram, from which its quantiles follow."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def features_of(shape: Sequence[int]) -> int:
    """Return how many features a sample has: its first axis, which is the channel of an image."""
    return shape[0] if shape else 1


def _rows(data: Data) -> np.ndarray:
    """Return the values by feature, float64 (n, features); of an image, every pixel is a row."""
    x = np.asarray(data.x, np.float64)
    return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]) if x.ndim > 1 else x[:, None]


def moments(data: Data, classes: int) -> Slot:
    """Return number, mean, squared deviations and missing values of each feature, and the labels.

    Args:
        data: a client's samples; NaN is a missing value.
        classes: how many classes there are; 0: targets are not classes.
    """
    rows = _rows(data)
    known = np.isfinite(rows)
    number = known.sum(axis=0).astype(np.float64)
    values = np.where(known, rows, 0.0)
    mean = values.sum(axis=0) / np.maximum(number, 1)
    deviations = np.where(known, rows - mean, 0.0)
    labels = np.bincount(data.y, minlength=classes) if classes else np.zeros(0)
    return {
        "number": number,
        "mean": mean,
        "squares": np.square(deviations).sum(axis=0),
        "missing": (~known).sum(axis=0).astype(np.float64),
        "labels": labels.astype(np.float64),
    }


def histogram(data: Data, ranges: np.ndarray) -> Slot:
    """Return how many values of each feature are in each bin, float64 (features * BINS,).

    Args:
        data: a client's samples.
        ranges: the lowest and the highest value of each feature, (2, features); values outside
            count in the bins at the ends.
    """
    rows = _rows(data)
    low, high = ranges
    place = (rows - low) / np.where(high > low, high - low, 1.0) * BINS
    known = np.isfinite(place)
    bins = np.clip(np.where(known, place, 0), 0, BINS - 1).astype(np.int64)
    cells = bins + BINS * np.arange(rows.shape[1])
    counts = np.bincount(cells[known], minlength=rows.shape[1] * BINS)
    return {"histogram": counts.astype(np.float64)}


@dataclass(frozen=True, eq=False)
class Statistics:
    """The statistics of some clients' samples together.

    Attributes:
        number: how many values of each feature are known, (features,).
        mean: of each feature.
        deviation: of each feature, that of the population.
        missing: how many values of each feature are missing.
        labels: how many samples each class has; empty: targets are not classes.
        quantiles: those of `QUANTILES` of each feature, (5, features); empty: not asked for.
    """

    number: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    missing: np.ndarray
    labels: np.ndarray
    quantiles: np.ndarray

    @classmethod
    def of(cls, answers: Sequence[Mapping[str, Any]]) -> Statistics:
        """Return the statistics of all clients, from the `moments` of each."""
        number = np.sum([one["number"] for one in answers], axis=0)
        weights = np.maximum(number, 1)
        mean = np.sum([one["number"] * one["mean"] for one in answers], axis=0) / weights
        squares = np.sum(
            [one["squares"] + one["number"] * (one["mean"] - mean) ** 2 for one in answers], axis=0
        )
        missing, labels = (
            np.sum([one[name] for one in answers], axis=0) for name in ("missing", "labels")
        )
        return cls(number, mean, np.sqrt(squares / weights), missing, labels, np.zeros((0, 0)))

    @property
    def ranges(self) -> np.ndarray:
        """The range of each feature whose histogram is asked for, (2, features)."""
        away = 4 * np.where(self.deviation > 0, self.deviation, 1.0)
        return np.stack([self.mean - away, self.mean + away])


def quantiles_of(histograms: Sequence[np.ndarray], ranges: np.ndarray) -> np.ndarray:
    """Return the quantiles of each feature, (5, features), each linear within its bin."""
    counts = np.sum(histograms, axis=0).reshape(-1, BINS)
    low, high = ranges
    found = np.zeros((len(QUANTILES), len(counts)))
    for feature, row in enumerate(counts):
        edges = np.linspace(low[feature], high[feature], BINS + 1)
        cumulative = np.concatenate([[0.0], np.cumsum(row)]) / max(row.sum(), 1.0)
        found[:, feature] = np.interp(QUANTILES, cumulative, edges)
    return found
