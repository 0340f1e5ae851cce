"""Data that come client by client: made from a number, checked, and refused when wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from layers.compute.data.datasets.arrays import CheckedFederatedData, FederatedData
from layers.compute.data.datasets.synthetic import Blobs
from layers.compute.errors import DataError


def checked(source: Any, clients: int = 4) -> CheckedFederatedData:
    return CheckedFederatedData.of(source, clients, "mine")


def test_blobs_of_a_client_are_a_function_of_seed_and_number() -> None:
    one, same, other = Blobs(9, seed=1), Blobs(9, seed=1), Blobs(9, seed=2)
    last = one.client(8)
    one.client(0)
    for again in (one.client(8), same.client(8)):
        np.testing.assert_array_equal(again[0], last[0])
        np.testing.assert_array_equal(again[1], last[1])
    assert not np.array_equal(one.client(7)[0], last[0])
    assert not np.array_equal(other.client(8)[0], last[0])


def test_blobs_lie_around_the_centres_of_their_classes() -> None:
    blobs = Blobs(3, samples=400, classes=4, labels=2, spread=0.1)
    x, y = blobs.client(1)
    assert (x.shape, x.dtype, y.dtype) == ((400, 1, 8, 8), np.float32, np.int64)
    assert len(set(y.tolist())) == 2
    tests, labels = blobs.test()
    assert set(labels.tolist()) == {0, 1, 2, 3}
    for label in set(y.tolist()):
        mean = x[y == label].mean(0)
        assert np.abs(tests[labels == label].mean(0) - mean).max() < 0.1
        assert 0.09 < x[y == label].std(0).mean() < 0.11
    assert len(set(Blobs(3, samples=400, labels=0).client(0)[1].tolist())) == 10


def test_blobs_of_several_sizes_are_as_announced() -> None:
    blobs = Blobs(200, samples=(5, 7))
    sizes = np.asarray(blobs.sizes())
    assert set(sizes.tolist()) == {5, 6, 7}
    assert [len(blobs.client(number)[1]) for number in range(200)] == sizes.tolist()
    assert Blobs(200, samples=6).sizes() == 6
    assert isinstance(blobs, FederatedData)


@pytest.mark.parametrize(
    ("settings", "near", "reason"),
    [
        ({"samples": 0}, {"samples": 1}, "samples must be 1 or more"),
        ({"samples": (3, 2)}, {"samples": (2, 2)}, "the least first"),
        ({"classes": 0}, {"classes": 1, "labels": 1}, "classes must be 1 or more"),
        ({"tests": 0}, {"tests": 1}, "tests must be 1 or more"),
        ({"labels": 11}, {"labels": 10}, "labels must be 0 to 10"),
        ({"shape": (1, 0)}, {"shape": (1, 1)}, "numbers from 1"),
        ({"spread": -0.1}, {"spread": 0.0}, "spread must be 0 or more"),
    ],
)
def test_blobs_refuse_wrong_settings_and_take_the_nearest(
    settings: dict[str, Any], near: dict[str, Any], reason: str
) -> None:
    Blobs(3, **near).client(2)
    with pytest.raises(DataError, match=reason):
        Blobs(3, **settings)


class Mine:
    """Two samples for each of four clients; an attribute of an instance replaces any part."""

    classes = 3

    def __init__(self, **changed: Any) -> None:
        self.changed = changed

    def sizes(self) -> Any:
        return self.changed.get("sizes", 2)

    def client(self, number: int) -> Any:
        return self.changed.get("client", (np.zeros((2, 5)), np.array([0, 2])))

    def test(self) -> Any:
        return self.changed.get("test", (np.zeros((1, 5)), np.array([1])))


def test_the_data_of_a_client_are_made_when_they_are_asked_for() -> None:
    data = checked(Mine())
    assert (data.shape, data.classes, data.sizes, len(data.test)) == ((5,), 3, 2, 1)
    assert data.client(3).y.tolist() == [0, 2]
    assert np.asarray(checked(Mine(sizes=[2, 2, 0, 2])).sizes).tolist() == [2, 2, 0, 2]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sizes": [2, 2, 2]}, r"mine: sizes\(\) has shape \(3,\)"),
        ({"sizes": 2.0}, "dtype float64"),
        ({"sizes": [2, -1, 2, 2]}, "must be 0 or more"),
        ({"sizes": 0}, "above 0 for a client"),
        ({"test": np.zeros((1, 5))}, "mine: test: gave a ndarray"),
        ({"test": (np.zeros((1, 5)), np.array([3]))}, "labels go from 3 to 3"),
        ({"test": (np.full((1, 5), np.nan), np.array([1]))}, "NaN"),
    ],
)
def test_wrong_test_samples_and_sizes_are_refused_before_the_run(
    changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        checked(Mine(**changed))


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ((np.zeros((3, 5)), np.array([0, 1, 2])), "client 1: has 3 samples"),
        ((np.zeros((2, 6)), np.array([0, 1])), r"of shape \(6,\)"),
        ((np.zeros((2, 5)), np.array([0, 3])), "client 1: the train labels go from 0 to 3"),
        ((np.zeros((2, 5)), np.array([0.0, 1.0])), "labels must be integers"),
        (None, "client 1: gave a NoneType"),
    ],
)
def test_wrong_samples_of_a_client_are_refused_with_its_number(client: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        checked(Mine(client=client)).client(1)
