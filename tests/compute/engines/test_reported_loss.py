"""The reported loss is the mean over mini-batches, however many there are and however large."""

from __future__ import annotations

import math

import numpy as np
import pytest

from layers.arithmetic import PART
from layers.compute.engines.mxnet.training import STEPS, ReportedLoss, Softmax


@pytest.mark.parametrize(
    "sizes", [[1], [3, 3, 2], [2] * STEPS, [2] * (2 * STEPS + 5), [PART, PART + 1, 7]]
)
def test_it_is_the_mean_of_the_means_of_the_mini_batches(sizes: list[int]) -> None:
    rng = np.random.default_rng(len(sizes))
    y = rng.integers(0, 3, sum(sizes))
    reported = ReportedLoss(Softmax(3), y)
    means, squares, order = [], [], rng.permutation(len(y))
    for rows in np.split(order, np.cumsum(sizes)[:-1]):
        probabilities = rng.dirichlet(np.ones(3), len(rows)).astype(np.float32)
        reported.add(probabilities, rows)
        losses = -np.log(probabilities[np.arange(len(rows)), y[rows]].astype(np.float64))
        means.append(losses.mean())
        squares.append((losses**2).mean())
        probabilities[:] = 0  # the engine fills the same array again
    mean, root = reported.means()
    assert mean == pytest.approx(np.mean(means), rel=1e-12)
    assert root == pytest.approx(math.sqrt(np.mean(squares)), rel=1e-12)


def test_no_mini_batch_has_no_loss() -> None:
    mean, root = ReportedLoss(Softmax(3), np.zeros(0, np.int64)).means()
    assert math.isnan(mean)
    assert math.isnan(root)
