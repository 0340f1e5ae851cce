"""Partitions: no sample is lost or given twice, and the same seed gives the same split."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.datasets import Dataset, Files, Raw, from_arrays
from layers.compute.data.datasets.images import Mnist
from layers.compute.data.partitions import PARTITIONS, Partition, divide
from layers.compute.data.partitions.biased import Biased
from layers.compute.data.partitions.by_label import Dirichlet, LabelQuantity, OneClass, Shards
from layers.compute.data.partitions.held_back import draw_balanced, hold_back
from layers.compute.data.partitions.label_free import ByUser, Iid, NormalSizes, Quantity
from layers.compute.data.partitions.partition import fill_up
from layers.compute.data.targets import Targets
from layers.compute.errors import PartitionError
from tests.logic.vector_files import vectors


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(classes: int, each: int) -> np.ndarray:
    return generator(9).permutation(np.repeat(np.arange(classes), each))


def sizes(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    alpha = st.floats(1e-3, 1e6)
    least = st.integers(0, 3)
    return draw(
        st.one_of(
            st.just(Iid()),
            st.builds(Shards, per_client=st.integers(1, 4)),
            st.just(OneClass()),
            st.builds(LabelQuantity, per_client=st.integers(1, 4)),
            st.builds(Dirichlet, alpha=alpha, min_samples=least, self_balancing=st.booleans()),
            st.builds(Quantity, alpha=alpha, min_samples=least),
            st.just(ByUser()),
            st.builds(Biased, share=st.floats(0, 1)),
            st.builds(Biased, threshold=st.just(0.9), distance=st.just("l1")),
        )
    )


@given(
    partition=partitions(),
    labels=st.lists(st.integers(0, 7), max_size=120),
    clients=st.integers(1, 30),
    seed=st.integers(0, 2**32),
    allow_empty=st.booleans(),
)
def test_a_partition_loses_no_sample_and_gives_none_twice(
    partition: Partition, labels: list[int], clients: int, seed: int, allow_empty: bool
) -> None:
    y = np.array(labels, dtype=np.int64)
    users = (y * 31 + np.arange(len(y))) % 17

    def split() -> list[np.ndarray]:
        return partition.split(y, users, clients, generator(seed), allow_empty=allow_empty)

    try:
        parts = split()
    except PartitionError:
        return  # see test_enough_samples_are_never_refused
    assert len(parts) == clients
    assert all(part.dtype == np.int64 and part.ndim == 1 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    least = 0 if allow_empty else getattr(partition, "min_samples", 1)
    assert min(sizes(parts)) >= least
    for part, again in zip(parts, split(), strict=True):
        np.testing.assert_array_equal(part, again)


@given(
    partition=partitions(),
    clients=st.integers(1, 30),
    samples=st.integers(0, 200),
    seed=st.integers(0, 2**32),
)
def test_enough_samples_are_never_refused(
    partition: Partition, clients: int, samples: int, seed: int
) -> None:
    y = generator(seed).integers(0, min(clients, 5), size=clients * 4 + samples)
    users = np.arange(len(y)) % clients
    assert sum(sizes(partition.split(y, users, clients, generator(seed)))) == len(y)


@pytest.mark.parametrize("name", PARTITIONS)
def test_too_many_or_no_clients_are_refused_in_one_line(name: str) -> None:
    for clients, words in ((4, name), (0, "at least 1, not 0")):
        with pytest.raises(PartitionError, match=words) as caught:
            PARTITIONS[name]().split(np.zeros(3, np.int64), np.arange(3), clients, generator())
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in PARTITIONS if name != "by-user"])
def test_another_seed_gives_another_split(name: str) -> None:
    y = balanced(10, 30)
    one, other = (PARTITIONS[name]().split(y, None, 20, generator(seed)) for seed in (1, 2))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_iid_parts_are_equal_and_hold_all_classes() -> None:
    y = balanced(10, 1000)
    parts = Iid().split(y, None, 20, generator())
    assert sizes(parts) == [500] * 20
    assert all(len(np.unique(y[part])) == 10 for part in parts)
    assert sorted(sizes(Iid().split(y[:103], None, 10, generator()))) == [10] * 7 + [11] * 3


def test_shards_equal_an_independently_computed_split() -> None:
    file = vectors("partition_shards")
    given, expected = file["inputs"], file["expected"]
    y = np.array(given["labels"])
    parts = Shards(given["shards_per_client"]).deal(y, np.array(given["permutation"]))
    assert len(parts) == given["n_clients"]
    assert [part.tolist() for part in parts] == expected["client_indices"]
    assert [np.unique(y[part]).tolist() for part in parts] == expected["client_label_sets"]


def test_shards_differ_in_size_by_one_at_most() -> None:
    y = balanced(10, 60)
    assert sizes(Shards(2).split(y, None, 30, generator())) == [20] * 30
    uneven = sizes(Shards(2).split(y[:-7], None, 30, generator()))
    assert sum(uneven) == 593
    assert set(uneven) <= {18, 19, 20}


def test_a_client_with_two_shards_has_few_labels() -> None:
    y = balanced(10, 600)
    parts = Shards(2).split(y, None, 100, generator())
    assert max(len(np.unique(y[part])) for part in parts) == 2


def test_one_class_gives_each_client_one_class() -> None:
    y = balanced(10, 60)
    parts = OneClass().split(y, None, 20, generator())
    assert [np.unique(y[part]).tolist() for part in parts] == [[i % 10] for i in range(20)]
    assert sizes(parts) == [30] * 20


def test_one_class_moves_each_client_to_the_class_with_the_most_samples_for_a_client() -> None:
    # Class 1 keeps client 1. Client 4 goes to class 0 (10 / 4 samples against 8 / 4), client 7 too
    # (10 / 5 against 8 / 4: the first of two equal ones), and client 10 to class 2 (10 / 6, 8 / 4).
    y = np.array([0] * 10 + [1] + [2] * 8)
    parts = OneClass().split(y, None, 12, generator())
    assert [np.unique(y[part]).tolist() for part in parts] == [
        [kind] for kind in (0, 1, 2, 0, 0, 2, 0, 0, 2, 0, 2, 2)
    ]
    assert sizes(parts) == [2, 1, 2, 2, 2, 2, 2, 1, 2, 1, 1, 1]


def test_one_class_refuses_fewer_clients_than_classes() -> None:
    with pytest.raises(PartitionError, match="3 clients cannot hold 10 classes"):
        OneClass().split(balanced(10, 6), None, 3, generator())


def test_label_quantity_gives_each_client_one_class_in_turn_and_others_at_random() -> None:
    y = balanced(10, 120)
    parts = LabelQuantity(per_client=3).split(y, None, 20, generator())
    classes = [set(np.unique(y[part]).tolist()) for part in parts]
    assert all(len(one) == 3 and i % 10 in one for i, one in enumerate(classes))
    for label in range(10):
        holders = [part for part, mine in zip(parts, classes, strict=True) if label in mine]
        counts = [int((y[part] == label).sum()) for part in holders]
        assert sum(counts) == 120
        assert max(counts) - min(counts) <= 1


def test_label_quantity_gives_every_class_to_a_client() -> None:
    y = balanced(10, 12)
    for clients, per_client in ((5, 2), (4, 3), (1, 10), (2, 30)):
        parts = LabelQuantity(per_client).split(y, None, clients, generator())
        assert sum(sizes(parts)) == 120
        assert max(len(np.unique(y[part])) for part in parts) <= per_client
    with pytest.raises(PartitionError, match="4 clients cannot hold 10 classes, 2 each"):
        LabelQuantity(2).split(y, None, 4, generator())


@given(
    per_client=st.integers(1, 12),
    each=st.integers(1, 150),
    share=st.floats(0, 1),
    clients=st.integers(10, 40),
    seed=st.integers(0, 2**32),
)
def test_clients_that_draw_from_the_whole_split_have_their_full_number_of_the_same_classes(
    per_client: int, each: int, share: float, clients: int, seed: int
) -> None:
    y = balanced(10, 120)
    for disjoint in (LabelQuantity(per_client), Biased(share)):
        rule = replace(disjoint, samples_per_class=each)
        drawn = rule.split(y, None, clients, generator(seed))
        for part, split in zip(
            drawn, disjoint.split(y, None, clients, generator(seed)), strict=True
        ):
            assert len(np.unique(part)) == len(part)
            counts = np.bincount(y[part], minlength=10)
            assert set(counts[counts > 0]) == {min(each, 120)}
            assert set(np.unique(y[split])) <= set(np.flatnonzero(counts))


def test_label_quantity_splits_a_class_without_training_samples_among_all_clients() -> None:
    train, test = balanced(3, 40), np.array([0, 1, 2, 3, 3, 3, 3])
    data = from_arrays(np.zeros((120, 1)), train, np.zeros((7, 1)), test)
    parts, tests = divide(data, LabelQuantity(1), 4, seed=2)
    for mine, tested in zip(parts, tests, strict=True):
        assert set(test[tested].tolist()) <= {*train[mine].tolist(), 3}
        assert np.count_nonzero(test[tested] == 3) == 1


def test_a_small_alpha_is_uneven_and_a_large_one_is_even() -> None:
    y = balanced(10, 500)

    def share_of_the_commonest(alpha: float) -> float:
        parts = Dirichlet(alpha).split(y, None, 20, generator())
        return float(np.mean([np.bincount(y[part]).max() / len(part) for part in parts]))

    assert share_of_the_commonest(0.05) > 0.7
    assert share_of_the_commonest(1000.0) < 0.13


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1e6])
@pytest.mark.parametrize("kind", [Dirichlet, Quantity])
def test_each_client_gets_min_samples(kind: type[Dirichlet] | type[Quantity], alpha: float) -> None:
    y = balanced(10, 100)
    assert sizes(kind(alpha, min_samples=20).split(y, None, 50, generator())) == [20] * 50
    assert min(sizes(kind(alpha, min_samples=10).split(y, None, 50, generator()))) >= 10


def test_clients_may_be_empty_with_min_samples_0() -> None:
    parts = Dirichlet(alpha=1e-3, min_samples=0).split(balanced(4, 25), None, 50, generator())
    assert sizes(parts).count(0) > 25


class Dealt:
    """A generator with known proportions that does not permute."""

    def __init__(self, *shares: tuple[float, ...]) -> None:
        self.shares = iter(shares)

    def dirichlet(self, alpha: np.ndarray) -> np.ndarray:
        return np.array(next(self.shares))

    def permutation(self, values: np.ndarray) -> np.ndarray:
        return values


def test_self_balancing_gives_full_clients_nothing_of_later_classes() -> None:
    # Computed by hand: 12 samples of three clients, so that four are enough. Client 0 has four
    # after class 0, client 1 after class 1; class 2 has no sample, and class 3 goes to the others.
    y = np.array([0] * 6 + [1] * 3 + [3] * 3)
    drawn = [(4 / 6, 1 / 6, 1 / 6), (0.5, 0.5, 0.0), (0.9, 0.1, 0.0), (0.5, 0.4, 0.1)]
    plain = Dirichlet().split(y, None, 3, Dealt(*drawn))
    assert [part.tolist() for part in plain] == [[0, 1, 2, 3, 6, 7, 9, 10], [4, 8, 11], [5]]
    balanced_ones = Dirichlet(self_balancing=True).split(y, None, 3, Dealt(*drawn))
    assert [part.tolist() for part in balanced_ones] == [[0, 1, 2, 3], [4, 6, 7, 8], [5, 9, 10, 11]]


def test_self_balancing_splits_evenly_if_the_other_clients_drew_nothing() -> None:
    y = np.array([0] * 6 + [1] * 6)
    parts = Dirichlet(self_balancing=True).split(y, None, 3, Dealt((1, 0, 0), (1, 0, 0)))
    assert sizes(parts) == [6, 3, 3]


def test_a_self_balancing_clients_test_part_has_the_label_mix_of_its_training_part() -> None:
    # The sizes of classes differ between the splits, and so do the clients that are full.
    y = np.repeat(np.arange(10), generator(1).integers(250, 350, 10))
    test_y = np.repeat(np.arange(11), generator(2).integers(250, 350, 11))
    data = from_arrays(np.zeros((len(y), 1)), y, np.zeros((len(test_y), 1)), test_y)
    for seed in range(20):
        train, test = divide(data, Dirichlet(0.5, self_balancing=True), 10, seed)
        np.testing.assert_array_equal(np.sort(np.concatenate(test)), np.arange(len(test_y)))
        ours, theirs = (
            np.array([np.bincount(labels[part], minlength=11)[:10] for part in parts])
            / np.bincount(labels)[:10]
            for labels, parts in ((y, train), (test_y, test))
        )
        np.testing.assert_allclose(ours, theirs, atol=0.01)


def test_samples_are_moved_from_the_largest_part() -> None:
    parts = [np.array([0, 1, 2, 3, 4]), np.zeros(0, int), np.array([5, 6, 7, 8]), np.array([9])]
    filled = fill_up(parts, 2)
    assert [part.tolist() for part in filled] == [[0, 1, 2], [4, 3], [5, 6, 7], [9, 8]]


def test_quantity_skews_sizes_but_not_labels() -> None:
    y = balanced(4, 5000)
    parts = Quantity(alpha=0.5).split(y, None, 20, generator())
    assert max(sizes(parts)) > 20 * min(sizes(parts))
    for part in parts:
        if len(part) > 1000:
            assert np.abs(np.bincount(y[part]) / len(part) - 0.25).max() < 0.06


def test_by_user_never_divides_a_user_and_spreads_users_evenly() -> None:
    users = generator().integers(0, 30, size=900)
    parts = ByUser().split(np.zeros(900, np.int64), users, 7, generator())
    owners = [set(users[part].tolist()) for part in parts]
    assert sorted(user for owned in owners for user in owned) == list(range(30))
    assert sorted(map(len, owners)) == [4, 4, 4, 4, 4, 5, 5]


@pytest.mark.parametrize(
    ("users", "missing"), [(None, "users_train and users_test"), ([0, 1, 2], "add users_test, one")]
)
def test_by_user_says_which_users_are_missing(users: list[int] | None, missing: str) -> None:
    y = np.arange(3)
    data = from_arrays(np.zeros((3, 2)), y, np.zeros((3, 2)), y, users=users)
    with pytest.raises(PartitionError, match=f"^by-user: .*{missing}.*$"):
        divide(data, ByUser(), 3, seed=1)


def test_a_client_has_the_same_users_in_both_splits() -> None:
    # User c has no test sample, user z no training sample.
    data = from_arrays(
        np.zeros((6, 2)), [0, 1, 0, 1, 0, 1], np.zeros((4, 2)), [0, 1, 1, 0],
        users=["d", "a", "b", "c", "d", "a"], users_test=["b", "z", "d", "a"],
    )  # fmt: skip
    train, test = divide(data, ByUser(), 4, seed=1)
    assert [part.tolist() for part in train] == [[1, 5], [2], [3], [0, 4]]
    assert [part.tolist() for part in test] == [[1, 3], [0], [], [2]]


@pytest.mark.parametrize("name", ["shards", "one-class", "label-quantity", "dirichlet"])
def test_a_clients_test_part_has_the_label_mix_of_its_training_part(name: str) -> None:
    y, test_y = balanced(10, 300), balanced(10, 100)
    data = from_arrays(np.zeros((3000, 1)), y, np.zeros((1000, 1)), test_y)
    train, test = divide(data, PARTITIONS[name](), 10, seed=[1, 2])
    for mine, tested in zip(train, test, strict=True):
        ours = np.bincount(y[mine], minlength=10) / len(mine)
        theirs = np.bincount(test_y[tested], minlength=10) / len(tested)
        np.testing.assert_allclose(ours, theirs, atol=0.02)


def test_mnist_gives_200_shards_of_300_to_100_clients(data_root) -> None:
    y = Mnist().load(Files(data_root)).train.y
    parts = Shards(per_client=2).split(y, None, 100, generator(1))
    assert sizes(parts) == [600] * 100
    ordered = np.sort(y)
    kinds = {tuple(ordered[start : start + 300]) for start in range(0, 60_000, 300)}
    assert all(tuple(y[part][:300]) in kinds and tuple(y[part][300:]) in kinds for part in parts)
    # A shard may contain the border of two labels, so a client may have four.
    labels = [len(np.unique(y[part])) for part in parts]
    assert max(labels) <= 4
    assert sorted(labels)[50] == 2


def test_normal_sizes_have_their_mean_and_spread_and_share_no_sample() -> None:
    parts = NormalSizes(mean=600, spread=0.25, least=100).split(
        np.zeros(60_000, np.int64), None, 80, generator(3)
    )
    drawn = sizes(parts)
    assert abs(np.mean(drawn) - 600) < 3 * 150 / 80**0.5
    assert 100 < np.std(drawn) < 200
    assert min(drawn) >= 100
    assert len(np.unique(np.concatenate(parts))) == sum(drawn)


@pytest.mark.parametrize(
    ("mean", "least", "each"), [(4, 1, 4), (4.4, 1, 4), (3.6, 1, 4), (2, 4, 4), (1, 0, 1)]
)
def test_normal_sizes_without_a_spread_are_the_mean_and_use_the_last_sample(
    mean: float, least: int, each: int
) -> None:
    partition = NormalSizes(mean, spread=0.0, least=least)
    parts = partition.split(np.zeros(3 * each, np.int64), None, 3, generator())
    assert sizes(parts) == [each] * 3
    assert sorted(np.concatenate(parts).tolist()) == list(range(3 * each))
    few = np.zeros(3 * each - 1, np.int64)
    with pytest.raises(PartitionError, match=f"normal-sizes: .*{3 * each - 1}"):
        partition.split(few, None, 3, generator())


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_test_split_without_samples_gives_each_client_an_empty_part(name: str) -> None:
    empty = np.zeros(0, np.int64)
    parts = PARTITIONS[name]().split(empty, empty, 4, generator(), allow_empty=True)
    assert [part.tolist() for part in parts] == [[]] * 4
    assert all(part.dtype == np.int64 for part in parts)


def test_splits_keep_their_recorded_bits() -> None:
    y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    seen = {
        name: [part.tolist() for part in partition().split(y, y, 3, generator(7))]
        for name, partition in PARTITIONS.items()
    }
    assert seen == json.loads(KNOWN)


KNOWN = """{
 "iid": [[0, 4, 6, 10], [1, 3, 7, 8], [2, 5, 9, 11]],
 "shards": [[8, 11, 1, 4], [0, 3, 2, 5], [6, 9, 7, 10]],
 "one-class": [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]],
 "label-quantity": [[0, 3, 6, 9, 11], [1, 2, 10], [4, 5, 7, 8]],
 "dirichlet": [[0, 2], [1, 3, 4, 5, 6, 7, 8, 9, 10], [11]],
 "quantity": [[3, 4, 8, 10], [1, 2, 5, 6, 7, 9, 11], [0]],
 "by-user": [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]],
 "biased": [[0, 3], [2, 6, 7, 9, 10, 11], [1, 4, 5, 8]],
 "normal-sizes": [[3, 6, 8, 11], [0, 1, 7, 10], [2, 4, 5, 9]]
}"""


LARGER: list[tuple[Partition, str]] = [
    (Iid(), "7a099ec25afbb4b4"),
    (Shards(3), "90b4165d68aa606b"),
    (OneClass(), "72cbf4ac982c381c"),
    (LabelQuantity(), "3e94c44c56ae9ca7"),
    (LabelQuantity(3), "ba4e66b7cbaed4f5"),
    (Dirichlet(), "fa9c64dcd488327b"),
    (Dirichlet(0.1, min_samples=9), "a508f4ed5040fe8b"),
    (Dirichlet(0.3, self_balancing=True), "ff2df997c6cbe9cc"),
    (Quantity(), "f27826aa241cbb59"),
    (Quantity(0.1, min_samples=9), "f75e87c9141d8257"),
    (ByUser(), "5d6dac19954f7634"),
    (Biased(), "e874e9e7d7ae40c6"),
    (Biased(0.5, threshold=1.2, distance="l1"), "a939184100af3a8d"),
    (NormalSizes(), "d7d7a8898fcdb91e"),
    (NormalSizes(spread=2.0, least=0), "8afb99e19e2dafdb"),
    (NormalSizes(mean=30, spread=0.5, least=9), "2bd7db204bc53251"),
]


@pytest.mark.parametrize(("partition", "digest"), LARGER, ids=str)
def test_divisions_of_unequal_classes_keep_recorded_bits(partition: Partition, digest: str) -> None:
    train, test = (np.repeat(np.arange(10), each * np.arange(4, 14)) for each in (10, 3))
    users = [generator(seed).integers(0, 70, len(y)) for seed, y in ((1, train), (2, test))]
    blank = [np.zeros((len(y), 1)) for y in (train, test)]
    data = from_arrays(blank[0], train, blank[1], test, *users)
    found = hashlib.sha256()
    for parts in divide(data, partition, 20, seed=5):
        for part in parts:
            found.update(np.array([len(part), *part], "<i8").tobytes())
    assert found.hexdigest()[:16] == digest


def bias(y: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
    counts = np.array([np.bincount(y[part], minlength=10) for part in parts])
    return np.abs(np.cumsum(counts / counts.sum(1, keepdims=True) - 0.1, 1)[:, :-1]).sum(1)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
def test_the_share_of_extremely_biased_clients_is_the_setting(share: float) -> None:
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


def test_only_labels_at_the_ends_are_far_by_their_numbers() -> None:
    # The sets that the docstring gives.
    y = np.repeat(np.arange(10), generator(5).integers(2000, 4000, 10))
    found = set()
    for seed in range(8):
        for part in Biased(0.8).split(y, None, 50, generator(seed)):
            labels = np.unique(y[part]).tolist()
            if len(labels) <= 2:
                found.add("".join(map(str, labels)))
    assert " ".join(sorted(found)) == "0 01 02 03 1 12 2 69 7 78 79 8 89 9"


def test_labels_of_a_single_class_are_divided_too() -> None:
    parts = Biased(0.5).split(np.zeros(12, np.int64), None, 3, generator(1))
    assert sorted(np.concatenate(parts).tolist()) == list(range(12))


def test_with_l1_any_one_or_two_labels_are_extremely_biased() -> None:
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
def test_the_greatest_possible_threshold_is_accepted_and_a_higher_one_refused(
    distance: Literal["emd", "l1"], classes: int, most: float
) -> None:
    y = balanced(classes, 30)

    def split(threshold: float | None, share: float = 0.4) -> list[np.ndarray]:
        return Biased(share, threshold, distance).split(y, None, 5, generator(3))

    assert sizes(split(most)) != []
    with pytest.raises(PartitionError, match=rf"threshold {most + 0.01:g} .*at most {most:g};"):
        split(most + 0.01)
    assert sum(sizes(split(most + 0.01, share=0.0))) == len(y), "nobody is extremely biased"
    if classes == 2:
        with pytest.raises(PartitionError, match=r"threshold 1\.3 .*at most 1;"):
            split(None)


def test_the_number_of_draws_is_limited() -> None:
    y = np.arange(2000)  # a draw is one end of the labels alone with a chance of 1 in 2000
    with pytest.raises(PartitionError, match="1000 draws"):
        Biased(1.0, threshold=999.5).split(y, None, 9, generator())


def test_classes_that_no_client_drew_are_assigned() -> None:
    y = balanced(10, 30)
    for share, seed in ((1.0, 1), (0.7, 2)):
        assert sum(sizes(Biased(share).split(y, None, 3, generator(seed)))) == 300


LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(lambda y: np.array(y, np.int64))
SHARES = st.floats(0, 0.6)
SEEDS = st.integers(0, 2**62)


@given(LABELS, SHARES, SHARES, SHARES, SEEDS)
def test_every_sample_is_in_one_asset_or_held_out_or_left_to_the_clients(
    labels, one, two, held_out, seed
) -> None:
    drawn = hold_back(labels, {"one": one, "two": two}, held_out, 0, (seed, seed + 1, 0))
    rest = np.arange(len(labels)) if drawn.rest is None else drawn.rest
    everything = np.concatenate([*drawn.assets.values(), drawn.held_out, rest])
    assert list(drawn.assets) == ["one", "two"]
    assert sorted(everything) == list(range(len(labels)))
    assert len(drawn.assets["one"]) == (max(round(one * len(labels)), 1) if one else 0)
    left = len(labels) - len(drawn.assets["one"])
    for share, rows in ((two, drawn.assets["two"]), (held_out, drawn.held_out)):
        assert len(rows) == min(max(round(share * len(labels)), 1) if share else 0, left)
        left -= len(rows)
    for rows in (*drawn.assets.values(), drawn.held_out, rest):
        assert (np.diff(rows) > 0).all()
    assert (drawn.rest is None) == (one == two == held_out == 0)


@given(LABELS, st.integers(0, 70), SEEDS)
def test_a_class_gives_less_than_another_only_if_it_has_fewer_samples(labels, number, seed) -> None:
    rows = draw_balanced(labels, number, np.random.default_rng(seed))
    assert len(set(rows.tolist())) == len(rows) == min(number, len(labels))
    there, taken = np.bincount(labels, minlength=6), np.bincount(labels[rows], minlength=6)
    most = taken.max()
    assert all(took == had or took >= most - 1 for took, had in zip(taken, there, strict=True))


def test_another_seed_draws_other_samples_and_the_same_seed_the_same() -> None:
    labels = np.arange(1000) % 10
    one, again, other = (hold_back(labels, {"a": 0.1}, 0.1, 0, (seed, 1, 0)) for seed in (1, 1, 2))
    assert np.array_equal(one.assets["a"], again.assets["a"])
    assert np.array_equal(one.held_out, again.held_out)
    assert not np.array_equal(one.assets["a"], other.assets["a"])


def test_an_asset_does_not_depend_on_those_that_follow() -> None:
    labels = np.arange(1000) % 10
    alone = hold_back(labels, {"a": 0.1}, 0, 0, (1, 1, 0)).assets["a"]
    assert np.array_equal(hold_back(labels, {"a": 0.1}, 0.1, 0, (1, 1, 0)).assets["a"], alone)
    both = hold_back(labels, {"a": 0.1, "b": 0.1}, 0, 0.2, (1, 1, 0)).assets
    assert np.array_equal(both["a"], alone)
    assert not set(both["b"].tolist()) & set(alone.tolist())


def test_what_is_held_back_keeps_its_recorded_bits() -> None:
    drawn = hold_back(
        np.array([0, 1, 2, 3] * 5 + [0] * 4), {"a": 0.25, "b": 0.1}, 0.4, 0, (1, 2, 0)
    )
    assets = {name: rows.tolist() for name, rows in drawn.assets.items()}
    assert assets == {"a": [2, 5, 7, 12, 17, 22], "b": [3, 13]}
    assert drawn.held_out.tolist() == [0, 1, 8, 9, 10, 11, 14, 15, 18, 19]
    assert drawn.rest.tolist() == [4, 6, 16, 20, 21, 23]


def test_only_the_remaining_rows_are_divided() -> None:
    labels, users = np.arange(60) % 3, np.arange(60) % 4
    raw = Raw(np.zeros((60, 2)), labels, users)
    dataset = Dataset("some", raw, raw, Targets("classes", 3), (2,))
    rest = hold_back(labels, {"a": 0.2}, 0.1, 0, (1, 2, 0)).rest
    for partition in (Iid(), ByUser()):
        train, test = divide(dataset, partition, 4, 7, rest)
        assert sorted(np.concatenate(train)) == rest.tolist()
        assert len(np.concatenate(test)) == 60
    assert all(set(users[part]) == {client} for client, part in enumerate(train))
