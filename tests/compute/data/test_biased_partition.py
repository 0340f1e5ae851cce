"""The partition biased: who is extremely biased, by which distance."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from layers.compute.data.partitions.biased import Biased
from layers.compute.errors import PartitionError
from tests.compute.data.splits import balanced, generator, sizes


def bias(y: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    counts = np.array([np.bincount(y[part], minlength=10) for part in parts])
    return np.abs(np.cumsum(counts / counts.sum(1, keepdims=True) - 0.1, 1)[:, :-1]).sum(1)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
def test_the_share_of_extremely_biased_clients_is_as_said(share: float) -> None:
    y = np.repeat(np.arange(10), generator(5).integers(2000, 4000, 10))
    for seed in range(5):
        parts = Biased(share).split(y, None, 50, generator(seed))
        far = bias(y, parts) >= 3 - 1e-9
        assert far.sum() == round(share * 50)
        held = np.array([np.bincount(y[part], minlength=10) for part in parts])
        classes = (held > 0).sum(1)
        assert classes[far].max(initial=1) <= 2
        assert classes[~far].min() >= 5
        if share == 0.4:
            assert len(set(held[far][held[far] > 0])) == 1, "as much of each class as of any other"


def test_by_the_l1_distance_clients_of_any_label_are_extremely_biased() -> None:
    y = np.repeat(np.arange(10), generator(5).integers(2000, 4000, 10))
    alone, pairs = set(), set()
    for seed in range(20):
        parts = Biased(0.4, distance="l1").split(y, None, 50, generator(seed))
        held = np.array([np.bincount(y[part], minlength=10) for part in parts])
        apart = np.abs(held / held.sum(1, keepdims=True) - 0.1).sum(1)
        far = apart >= 1.3 - 1e-9
        assert far.sum() == 20
        np.testing.assert_allclose(np.sort(np.unique(apart[far].round(9))), [1.6, 1.8])
        sets = [tuple(np.flatnonzero(row)) for row in held[far]]
        alone |= {one for one in sets if len(one) == 1}
        pairs |= {one for one in sets if len(one) == 2}
        assert (held[~far] > 0).sum(1).min() >= 5
    assert (len(alone), len(pairs)) == (10, 45), "the distance by labels' numbers allows 6 and 8"


@pytest.mark.parametrize(
    ("distance", "classes", "most"), [("emd", 10, 4.5), ("l1", 10, 1.8), ("l1", 2, 1.0)]
)
def test_a_threshold_beyond_every_client_is_refused_and_the_farthest_is_taken(
    distance: Literal["emd", "l1"], classes: int, most: float
) -> None:
    y = balanced(classes, 30)

    def split(threshold: float | None, share: float = 0.4) -> list[np.ndarray]:
        return Biased(share, threshold, distance).split(y, None, 5, generator(3))

    assert sizes(split(most)) != []
    with pytest.raises(PartitionError, match=f"biased: no client is {most + 0.01:g} away"):
        split(most + 0.01)
    assert sum(sizes(split(most + 0.01, share=0.0))) == len(y), "nobody is extremely biased"
    if classes == 2:
        with pytest.raises(PartitionError, match=r"no client is 1\.3 away .*at most 1\b"):
            split(None)


def test_classes_that_are_hardly_ever_far_enough_end_the_draws() -> None:
    y = np.arange(2000)  # a draw is one end of the labels alone with a chance of 1 in 2000
    with pytest.raises(PartitionError, match="1000 draws found no classes"):
        Biased(1.0, threshold=999.5).split(y, None, 9, generator())


def test_classes_that_no_biased_client_drew_go_to_somebody() -> None:
    y = balanced(10, 30)
    for share, seed in ((1.0, 1), (0.7, 2)):
        parts = Biased(share).split(y, None, 3, generator(seed))
        assert sum(sizes(parts)) == 300
