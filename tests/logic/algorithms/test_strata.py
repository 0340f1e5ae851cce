"""Strata: clusters that do not hang on where the vectors lie, and fair draws from each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic.algorithms.fedsso import (
    allocation,
    clusters,
    drawn,
    grouped,
    products,
    projection,
)
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import sketch

seeds = st.integers(0, 10_000)


def blobs(seed: int, sizes: tuple[int, ...] = (6, 5, 8), d: int = 40) -> list[np.ndarray]:
    """Return tight groups of vectors, far from one another."""
    rng = np.random.default_rng(seed)
    return [
        (centre + 0.01 * rng.normal(size=d)).astype(np.float32)
        for centre, size in zip(10 * rng.normal(size=(len(sizes), d)), sizes, strict=True)
        for _ in range(size)
    ]


def test_many_clients_are_clustered_row_by_row_into_the_same_strata(monkeypatch) -> None:
    vectors = blobs(5, (40, 30, 50))
    origin = np.zeros(vectors[0].size, np.float32)
    inner = products(vectors, origin)
    expected, points = clusters(inner, 2, 0.25), projection(inner)
    monkeypatch.setattr("layers.logic.algorithms.fedsso.WHOLE", 100)
    monkeypatch.setattr("layers.logic.algorithms.fedsso.ROWS", 16)
    by_rows = products(vectors, origin)
    np.testing.assert_allclose(by_rows, inner, rtol=1e-9, atol=1e-9)
    # An axis of a projection has no sign.
    np.testing.assert_allclose(np.abs(projection(by_rows)), np.abs(points), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(clusters(by_rows, 2, 0.25), expected)
    assert not by_rows.diagonal().any()  # overwritten, so that there is no second matrix


def test_few_clients_are_clustered_without_a_change_of_their_products() -> None:
    inner = products(blobs(5), np.zeros(40, np.float32))
    before = inner.copy()
    clusters(inner, 2, 0.25)
    projection(inner)
    np.testing.assert_array_equal(inner, before)


def test_products_are_those_of_the_vectors_whatever_their_length() -> None:
    rng = np.random.default_rng(3)
    vectors, origin = rng.normal(size=(7, 10_001)).astype(np.float32), rng.normal(size=10_001)
    expected = (vectors - origin) @ (vectors - origin).T
    np.testing.assert_allclose(products(list(vectors), origin), expected, rtol=1e-12)


@given(seed=seeds)
def test_clusters_are_those_of_scikit_learn_on_the_vectors_themselves(seed) -> None:
    from sklearn.cluster import OPTICS

    vectors = np.array(blobs(seed))
    inner = products(list(vectors), np.zeros(vectors.shape[1]))
    expected = OPTICS(min_samples=2, xi=0.25).fit(vectors.astype(np.float64)).labels_
    np.testing.assert_array_equal(clusters(inner, 2, 0.25), expected)


@pytest.mark.parametrize("number", [0, 1])
def test_too_few_to_cluster_are_one_cluster(number) -> None:
    assert clusters(np.ones((number, number)), 2, 0.25).tolist() == [0] * number


@pytest.mark.parametrize("value", [0.0, 0.1, 1e30])
def test_equal_vectors_are_one_cluster(value) -> None:
    vectors = [np.full(1000, value, np.float32)] * 9
    assert clusters(products(vectors, np.zeros(1000)), 2, 0.25).tolist() == [0] * 9


def test_one_wild_vector_does_not_hide_the_clusters_of_the_others() -> None:
    sane = blobs(1)
    wild = np.full(40, 1e38, np.float32)
    inner = products([*sane, wild], np.zeros(40))
    labels = clusters(inner, 2, 0.25)
    assert len(set(labels[:6])) == len(set(labels[6:11])) == len(set(labels[11:19])) == 1
    assert len(set(labels[[0, 6, 11]])) == 3
    assert np.isfinite(projection(inner)).all()


@given(seed=seeds)
def test_the_projection_is_that_of_principal_components(seed) -> None:
    from sklearn.decomposition import PCA

    vectors = np.array(blobs(seed), np.float64)
    ours = projection(products(list(vectors), np.zeros(40)))
    theirs = PCA(2, svd_solver="full").fit_transform(vectors)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-6)


@pytest.mark.parametrize("vectors", [[[1.0, 2.0]], [[0.0, 0.0]] * 3, [[1.0, 1.0]] * 3])
def test_vectors_without_extent_are_projected_onto_one_place(vectors) -> None:
    inner = products([np.array(vector) for vector in vectors], np.zeros(2))
    points = projection(inner)
    assert points.shape == (len(vectors), 2)
    np.testing.assert_allclose(points, 0, atol=1e-7)


def test_an_allocation_is_the_share_rounded_half_up_and_at_least_one() -> None:
    sizes = np.array([34, 5, 1, 10, 15, 25, 0])
    assert allocation(0.1, sizes).tolist() == [3, 1, 1, 1, 2, 3, 1]
    assert allocation(0.29, np.array([50])).tolist() == [15]  # 0.29 * 50 is 14.499999999999998


@given(
    labels=st.lists(st.integers(-1, 5), max_size=60),
    noise=st.sampled_from(["stratum", "drop", "singletons"]),
)
def test_every_client_with_a_stratum_is_in_one_that_has_a_name(labels, noise) -> None:
    labels = np.array(labels, np.int64)
    clients = np.arange(labels.size) * 3
    strata, names = grouped(clients, labels, noise)
    assert len(set(names)) == len(names)
    assert strata.max(initial=-1) < len(names)
    clustered = labels >= 0
    np.testing.assert_array_equal(strata[clustered], labels[clustered])
    if noise == "drop" and clustered.any():
        assert (strata[~clustered] == -1).all()
    else:
        assert (strata >= 0).all()
        lone = {names[stratum] for stratum in strata[~clustered]}
        if noise == "singletons" and clustered.any():
            assert lone == {f"client {client}" for client in clients[~clustered]}
        else:
            assert lone <= {"noise"}


@given(
    strata=st.lists(st.integers(0, 6), max_size=60),
    wanted=st.lists(st.integers(0, 9), min_size=7, max_size=7),
    seed=seeds,
)
def test_a_draw_takes_from_each_stratum_what_is_wanted_or_all(strata, wanted, seed) -> None:
    strata, wanted = np.array(strata, np.int64), np.array(wanted)
    places = drawn(strata, wanted, np.random.default_rng(seed))
    assert len(set(places.tolist())) == places.size
    there = np.bincount(strata, minlength=7)
    np.testing.assert_array_equal(
        np.bincount(strata[places], minlength=7), np.minimum(there, wanted)
    )
    assert list(zip(strata[places], places, strict=True)) == sorted(
        zip(strata[places], places, strict=True)
    )


def test_a_draw_favours_nobody_in_a_stratum() -> None:
    strata = np.repeat([0, 1], [10, 4])
    draws = 4000
    taken = np.zeros(14)
    rng = np.random.default_rng(0)
    for _ in range(draws):
        taken[drawn(strata, np.array([3, 1]), rng)] += 1
    expected = np.repeat([0.3, 0.25], [10, 4])
    np.testing.assert_allclose(taken / draws, expected, atol=5 * np.sqrt(0.21 / draws))


@given(seed=seeds)
def test_sketches_are_as_far_apart_as_their_vectors(seed) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, 5000)).astype(np.float32)
    apart = np.linalg.norm(sketch(one, 1024, 3) - sketch(other, 1024, 3))
    assert apart == pytest.approx(np.linalg.norm(one - other), rel=0.2)


def test_a_sketch_of_a_sum_is_the_sum_of_sketches() -> None:
    one, other = np.random.default_rng(0).normal(size=(2, 3000)).astype(np.float32)
    both = sketch(one, 32, 3) + sketch(other, 32, 3)
    np.testing.assert_allclose(sketch(one + other, 32, 3), both, atol=1e-4)


def test_a_sketch_longer_than_its_vector_is_refused() -> None:
    with pytest.raises(LogicError, match="a sketch of 6 values of a vector of 5"):
        sketch(np.zeros(5, np.float32), 6, 3)
