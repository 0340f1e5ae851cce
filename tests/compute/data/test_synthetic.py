"""Data drawn from the seed: FedProx's synthetic data and blobs."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest

from layers.compute.data.datasets import Files
from layers.compute.data.datasets.arrays import FederatedData
from layers.compute.data.datasets.synthetic import Blobs, Synthetic
from layers.compute.data.partitions import divide
from layers.compute.data.partitions.label_free import ByUser
from layers.compute.errors import DataError


@pytest.mark.parametrize("kind", [Synthetic, Blobs])
def test_a_client_is_a_function_of_seed_and_number(kind: type[Synthetic] | type[Blobs]) -> None:
    x, y = kind(clients=9, seed=1).client(8)
    again = kind(clients=30, seed=1)
    again.client(0)
    for _ in range(2):
        np.testing.assert_array_equal(again.client(8)[0], x)
        np.testing.assert_array_equal(again.client(8)[1], y)
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    for other in (again.client(7), kind(clients=9, seed=2).client(8)):
        assert other[0].flat[0] != x.flat[0]


def test_nine_in_ten_of_a_clients_samples_are_for_training() -> None:
    synthetic = Synthetic(clients=30, seed=4)
    data = synthetic.load(Files())
    assert (data.shape, data.targets.classes, data.train.x.dtype) == ((60,), 10, np.float32)
    train, test = divide(data, ByUser(), 30, seed=1)
    for number, (mine, tested) in enumerate(zip(train, test, strict=True)):
        x, y = synthetic.client(number)
        assert (len(mine), len(tested)) == (int(0.9 * len(y)), len(y) - int(0.9 * len(y)))
        np.testing.assert_array_equal(np.concatenate([data.train.x[mine], data.test.x[tested]]), x)
        np.testing.assert_array_equal(np.concatenate([data.train.y[mine], data.test.y[tested]]), y)
    assert sum(map(len, test)) == len(data.test)


def test_sizes_are_50_plus_a_lognormal_number() -> None:
    synthetic = Synthetic(clients=2000, seed=3)
    sizes = np.array([synthetic._begun(number)[0] for number in range(2000)])
    drawn = np.log(sizes - 50 + 0.5)  # 0.5 is the mean of the truncated fraction
    assert sizes.min() >= 50
    assert abs(np.median(drawn) - 4) < 0.15
    quarter, more = np.quantile(drawn, [0.5 - 0.3413, 0.5 + 0.3413])
    assert (more - quarter) / 2 == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize("iid", [False, True])
def test_labels_are_those_of_the_clients_model(iid: bool) -> None:
    synthetic = Synthetic(seed=5, iid=iid)
    for number in range(10):
        x, y = synthetic.client(number)
        source = synthetic.source(number)
        outputs = x.astype(np.float64) @ source.weights + source.bias
        assert (outputs.argmax(axis=1) == y).mean() > 0.999  # labels were given before rounding


def test_the_variance_of_inputs_decreases_along_the_features() -> None:
    synthetic = Synthetic(clients=300, seed=6)
    apart = np.concatenate(
        [synthetic.client(k)[0] - synthetic.source(k).mean for k in range(300)], dtype=np.float64
    )
    expected = [j**-1.2 for j in range(1, 61)]
    np.testing.assert_allclose(apart.var(axis=0), expected, rtol=0.02)
    correlated = np.corrcoef(apart.T) - np.eye(60)
    assert np.abs(correlated).max() < 0.02


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (0.0, 2.0)])
def test_alpha_and_beta_are_the_deviations_of_models_and_inputs(alpha: float, beta: float) -> None:
    synthetic = Synthetic(alpha, beta, clients=1500, seed=7)
    sources = [synthetic.source(number) for number in range(1500)]
    models = [np.append(one.weights, one.bias) for one in sources]
    inputs = [one.mean for one in sources]
    for values, deviation in ((np.array(models), alpha), (np.array(inputs), beta)):
        means = values.mean(axis=1)
        assert means.std() == pytest.approx(math.hypot(deviation, values.shape[1] ** -0.5), 0.06)
        assert abs(means.mean()) < 4 * (deviation + 0.1) / 1500**0.5
        assert values.var(axis=1, ddof=1).mean() == pytest.approx(1, rel=0.02)


def test_iid_clients_have_one_model_and_inputs_around_0() -> None:
    synthetic = Synthetic(iid=True, seed=8)
    first, last = synthetic.source(0), synthetic.source(29)
    np.testing.assert_array_equal(first.weights, last.weights)
    np.testing.assert_array_equal(first.bias, last.bias)
    assert first.weights.std() == pytest.approx(1, rel=0.1)
    assert not first.mean.any()
    assert not np.array_equal(synthetic.client(0)[0][:50], synthetic.client(29)[0][:50])


def test_the_samples_keep_their_recorded_bits() -> None:
    digests = []
    for settings in ({}, {"alpha": 0.5, "beta": 0.5}, {"iid": True}):
        data = Synthetic(**settings, seed=1).load(Files())
        found = hashlib.sha256()
        for raw in (data.train, data.test):
            found.update(raw.x.tobytes() + raw.y.tobytes() + raw.users.tobytes())
        digests.append(found.hexdigest()[:16])
    assert digests == ["040ef9872b93c868", "4fe47660726cb27f", "e11a4ba63ceec8bd"]


def test_blobs_keep_their_recorded_bits() -> None:
    digests = []
    for settings in ({}, {"seed": 3, "samples": (5, 9), "labels": 0}, {"shape": (6,), "tests": 7}):
        blobs = Blobs(4, **settings)
        found = hashlib.sha256(np.asarray(blobs.sizes()).tobytes())
        for x, y in (blobs.client(0), blobs.client(3), blobs.test()):
            found.update(x.tobytes() + y.tobytes())
        digests.append(found.hexdigest()[:16])
    assert digests == ["34cb40d780b5bda0", "8f032c95d9cdd789", "fde7d6ca35c23f65"]


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


def test_blobs_have_the_announced_sizes() -> None:
    blobs = Blobs(200, samples=(5, 7))
    sizes = np.asarray(blobs.sizes())
    assert set(sizes.tolist()) == {5, 6, 7}
    assert [len(blobs.client(number)[1]) for number in range(200)] == sizes.tolist()
    assert Blobs(200, samples=6).sizes() == 6
    assert isinstance(blobs, FederatedData)


@pytest.mark.parametrize(
    ("settings", "near", "reason"),
    [
        ({"samples": 0}, {"samples": 1}, "samples"),
        ({"samples": (3, 2)}, {"samples": (2, 2)}, "the least first"),
        ({"classes": 0}, {"classes": 1, "labels": 1}, "classes"),
        ({"tests": 0}, {"tests": 1}, "tests"),
        ({"labels": 11}, {"labels": 10}, "labels must be 0 to 10"),
        ({"shape": (1, 0)}, {"shape": (1, 1)}, "shape"),
        ({"spread": -0.1}, {"spread": 0.0}, "spread"),
    ],
)
def test_blobs_refuse_wrong_settings_and_accept_the_nearest(
    settings: dict[str, Any], near: dict[str, Any], reason: str
) -> None:
    Blobs(3, **near).client(2)
    with pytest.raises(DataError, match=reason):
        Blobs(3, **settings)
