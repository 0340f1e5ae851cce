"""Randomised response: by chance, a client replaces labels in its answer with others.

Source: Warner 1965, "Randomized response: a survey technique for eliminating evasive answer bias";
for k categories Kairouz, Bonawitz and Ramage 2016, "Discrete distribution estimation under local
privacy". A label is kept with probability p = e^epsilon / (e^epsilon + k - 1), and is otherwise one
of the k - 1 others, each with probability q = 1 / (e^epsilon + k - 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.arithmetic import exp
from layers.logic.errors import LogicError
from layers.logic.secrets import Secret


@dataclass(frozen=True)
class RandomisedResponse:
    """How a client answers with some of its labels.

    Attributes:
        categories: k, the number of labels; 2 or more.
        epsilon: of each label in the answer.
        most: the most labels in one answer, which together tell `most` times epsilon.
    """

    categories: int
    epsilon: float
    most: int

    def __post_init__(self) -> None:
        if self.categories < 2:
            raise LogicError(f"randomised response of {self.categories} labels; it needs 2 or more")

    @property
    def kept(self) -> float:
        """The probability p with which a label stays what it is."""
        return float(self._times / (self._times + self.categories - 1))

    @property
    def other(self) -> float:
        """The probability q of each other label."""
        return float(1 / (self._times + self.categories - 1))

    @property
    def _times(self) -> float:
        return float(exp(np.array([self.epsilon]))[0])

    def answer(self, histogram: np.ndarray, secret: Secret) -> np.ndarray:
        """Return the histogram of the labels that a client sends, int64 (k,).

        The labels are drawn without replacement, so that each of them is told once at most. The
        same samples give the same answer, however often somebody asks.

        Args:
            histogram: of the client's labels, int64 (k,).
            secret: the client's.
        """
        draws = secret.draws("labels", histogram)
        labels = np.repeat(np.arange(self.categories), histogram)
        told = labels[draws.uniform(labels.size).argsort(kind="stable")][: self.most]
        keeps = draws.below(self.kept, told.size)
        away = 1 + np.floor(draws.uniform(told.size) * (self.categories - 1)).astype(np.int64)
        sent = np.where(keeps, told, (told + away) % self.categories)
        return np.bincount(sent, minlength=self.categories).astype(np.int64)

    def estimate(self, counts: np.ndarray) -> np.ndarray:
        """Return the estimate of the true counts, float64 (k,), whose expectation is the truth.

        Single values may be below 0. The sum is that of the counts.

        Args:
            counts: of the labels that were sent, of one client or of several, (k,).
        """
        total = counts.sum()
        return np.asarray((counts - self.other * total) / (self.kept - self.other))

    def histogram(self, counts: np.ndarray, samples: int) -> np.ndarray:
        """Return the likely histogram of a client's labels: whole numbers of 0 or more, int64 (k,).

        Values of the estimate below 0 are 0, so that this has a bias, unlike the estimate.

        Args:
            counts: of the labels that the client has sent, int64 (k,).
            samples: the client's number of samples, 1 or more.
        """
        above = np.maximum(self.estimate(counts), 0.0)
        return np.asarray(np.rint(above * (samples / above.sum())), np.int64)
