"""The metrics of an evaluation are those of its samples."""

import numpy as np
import pytest

from layers.compute.scores import Metrics, Scores


@pytest.mark.parametrize(
    ("batch_size", "loss"), [(1, 1e16 + 2), (2, 1e16 + 4), (3, 1e16 + 4), (5, 1e16 + 2)]
)
def test_losses_are_added_batch_by_batch(batch_size: int, loss: float) -> None:
    # Doubles near 1e16 are even, and halves are rounded to a multiple of 4: 1e16 + 1 is 1e16, and
    # 1e16 + 3 is 1e16 + 4.
    right = np.array([True, False, True, False, False])
    scores = Scores(right, np.array([1e16, 0.0, 1.0, 1.0, 2.0]), batch_size)
    assert scores.metrics() == Metrics(loss / 5, 2 / 5, 5)
