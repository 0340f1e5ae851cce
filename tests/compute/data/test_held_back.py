"""What is taken out of a training split is balanced, is nobody else's, and depends on its seed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.datasets import Dataset, Raw
from layers.compute.data.partitions import divide
from layers.compute.data.partitions.held_back import draw_balanced, hold_back
from layers.compute.data.partitions.label_free import ByUser, Iid

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(lambda y: np.array(y, np.int64))
SHARES = st.floats(0, 0.6)
SEEDS = st.integers(0, 2**62)


@given(LABELS, SHARES, SHARES, SHARES, SEEDS)
def test_every_sample_is_in_one_asset_or_held_out_or_somebodys(
    labels, one, two, held_out, seed
) -> None:
    drawn = hold_back(labels, {"one": one, "two": two}, held_out, seed, seed + 1)
    rest = np.arange(len(labels)) if drawn.rest is None else drawn.rest
    everything = np.concatenate([*drawn.assets.values(), drawn.held_out, rest])
    assert list(drawn.assets) == ["one", "two"]
    assert sorted(everything) == list(range(len(labels)))
    assert len(drawn.assets["one"]) == (max(round(one * len(labels)), 1) if one else 0)
    assert (drawn.rest is None) == (one == two == held_out == 0)


@given(LABELS, st.integers(0, 70), SEEDS)
def test_a_class_gives_less_than_another_only_if_it_has_no_more(labels, number, seed) -> None:
    rows = draw_balanced(labels, number, np.random.default_rng(seed))
    assert len(set(rows.tolist())) == len(rows) == min(number, len(labels))
    there, taken = np.bincount(labels, minlength=6), np.bincount(labels[rows], minlength=6)
    most = taken.max()
    assert all(took == had or took >= most - 1 for took, had in zip(taken, there, strict=True))


def test_another_seed_draws_other_samples_and_the_same_seed_the_same() -> None:
    labels = np.arange(1000) % 10
    one, again, other = (hold_back(labels, {"a": 0.1}, 0.1, seed, 1) for seed in (1, 1, 2))
    assert np.array_equal(one.assets["a"], again.assets["a"])
    assert np.array_equal(one.held_out, again.held_out)
    assert not np.array_equal(one.assets["a"], other.assets["a"])


def test_the_first_asset_is_the_same_whatever_follows_it() -> None:
    labels = np.arange(1000) % 10
    alone = hold_back(labels, {"a": 0.1}, 0, 1, 1).assets["a"]
    assert np.array_equal(hold_back(labels, {"a": 0.1}, 0.1, 1, 1).assets["a"], alone)
    both = hold_back(labels, {"a": 0.1, "b": 0.1}, 0, 1, 1).assets
    assert np.array_equal(both["a"], alone)
    assert not set(both["b"].tolist()) & set(alone.tolist())


def test_only_the_rows_that_are_left_are_divided_and_users_keep_theirs() -> None:
    labels, users = np.arange(60) % 3, np.arange(60) % 4
    raw = Raw(np.zeros((60, 2)), labels, users)
    dataset = Dataset("some", raw, raw, 3, (2,))
    rest = hold_back(labels, {"a": 0.2}, 0.1, 1, 2).rest
    assert rest is not None
    for partition in (Iid(), ByUser()):
        train, test = divide(dataset, partition, 4, 7, rest)
        assert sorted(np.concatenate(train)) == rest.tolist()
        assert len(np.concatenate(test)) == 60
    assert all(set(users[part]) == {client} for client, part in enumerate(train))
