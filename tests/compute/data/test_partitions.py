"""Partitions: no sample lost, none twice, the same from the same seed, and an end to all of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.compute.data.datasets import Files, from_arrays
from layers.compute.data.datasets.images import Digits, Mnist
from layers.compute.data.partitions import PARTITIONS, Partition, divide
from layers.compute.data.partitions.biased import Biased
from layers.compute.data.partitions.by_label import Dirichlet, LabelQuantity, OneClass, Shards
from layers.compute.data.partitions.label_free import ByUser, Iid, NormalSizes, Quantity
from layers.compute.data.partitions.partition import fill_up
from layers.compute.errors import PartitionError
from tests.compute.data.splits import balanced, generator, sizes
from tests.logic.vector_files import vectors


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
        return  # That enough samples are never refused is another test's.
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
def test_too_many_clients_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(PartitionError, match=name) as caught:
        PARTITIONS[name]().split(np.zeros(3, np.int64), np.arange(3), 4, generator())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PARTITIONS)
def test_no_clients_are_refused(name: str) -> None:
    with pytest.raises(PartitionError, match="at least 1, not 0"):
        PARTITIONS[name]().split(np.zeros(3, np.int64), np.arange(3), 0, generator())


@pytest.mark.parametrize("name", [name for name in PARTITIONS if name != "by-user"])
def test_another_seed_gives_another_split(name: str) -> None:
    y = balanced(10, 30)
    one, other = (PARTITIONS[name]().split(y, None, 20, generator(seed)) for seed in (1, 2))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (lambda: Shards(per_client=0), "per_client"),
        (lambda: LabelQuantity(per_client=0), "per_client"),
        (lambda: Dirichlet(alpha=0.0), "alpha"),
        (lambda: Dirichlet(alpha=float("nan")), "alpha"),
        (lambda: Dirichlet(alpha=1e9), "alpha"),
        (lambda: Dirichlet(min_samples=-1), "min_samples"),
        (lambda: Biased(share=1.1), "share"),
        (lambda: Biased(threshold=0.0), "threshold"),
        (lambda: Biased(threshold=9.0).split(balanced(3, 9), None, 3, generator()), "threshold"),
        (lambda: Biased(distance="l2"), "distance"),
        (lambda: Quantity(alpha=-1.0), "alpha"),
        (lambda: Quantity(min_samples=-1), "min_samples"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(
    make: Callable[[], Partition], setting: str
) -> None:
    with pytest.raises(PartitionError, match=setting):
        make()


def test_iid_parts_are_equal_and_hold_all_classes() -> None:
    y = balanced(10, 1000)
    parts = Iid().split(y, None, 20, generator())
    assert sizes(parts) == [500] * 20
    assert all(len(np.unique(y[part])) == 10 for part in parts)
    assert sorted(sizes(Iid().split(y[:103], None, 10, generator()))) == [10] * 7 + [11] * 3


def test_shards_agree_with_the_split_worked_out_apart_from_this_code() -> None:
    file = vectors("partition_shards")
    given, expected = file["inputs"], file["expected"]
    y = np.array(given["labels"])
    parts = Shards(given["shards_per_client"]).deal(y, np.array(given["permutation"]))
    assert len(parts) == given["n_clients"]
    assert [part.tolist() for part in parts] == expected["client_indices"]
    sets = [np.unique(y[part]).tolist() for part in parts]
    assert sets == expected["client_label_sets"]


def test_shards_are_dealt_as_a_permutation_says() -> None:
    # The same without the file: sixteen samples of three classes, eight shards of two.
    y = np.array([1, 0, 2, 1, 0, 2, 0, 1, 2, 0, 1, 2, 0, 0, 1, 2])
    parts = Shards(per_client=2).deal(y, np.array([5, 0, 7, 2, 1, 6, 3, 4]))
    assert [part.tolist() for part in parts] == [
        [14, 2, 1, 4],
        [11, 15, 12, 13],
        [6, 9, 5, 8],
        [0, 3, 7, 10],
    ]


def test_shards_are_equal_where_they_can_be_and_differ_by_one_where_not() -> None:
    y = balanced(10, 60)
    assert sizes(Shards(2).split(y, None, 30, generator())) == [20] * 30
    uneven = sizes(Shards(2).split(y[:-7], None, 30, generator()))
    assert sum(uneven) == 593
    assert set(uneven) <= {18, 19, 20}


def test_a_client_of_two_shards_sees_few_labels() -> None:
    y = balanced(10, 600)
    parts = Shards(2).split(y, None, 100, generator())
    assert max(len(np.unique(y[part])) for part in parts) == 2


def test_one_class_gives_each_client_one_class() -> None:
    y = balanced(10, 60)
    parts = OneClass().split(y, None, 20, generator())
    assert [np.unique(y[part]).tolist() for part in parts] == [[i % 10] for i in range(20)]
    assert sizes(parts) == [30] * 20


def test_one_class_moves_clients_from_a_class_that_has_too_few_samples() -> None:
    y = np.array([0] * 50 + [1] * 2 + [2] * 20)
    parts = OneClass().split(y, None, 12, generator())
    assert min(sizes(parts)) >= 1
    assert sum(y[part][0] == 1 for part in parts) == 2
    assert all(len(np.unique(y[part])) == 1 for part in parts)


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


def test_label_quantity_leaves_no_class_to_nobody() -> None:
    y = balanced(10, 12)
    for clients, per_client in ((5, 2), (4, 3), (1, 10), (2, 30)):
        parts = LabelQuantity(per_client).split(y, None, clients, generator())
        assert sum(sizes(parts)) == 120
        assert max(len(np.unique(y[part])) for part in parts) <= per_client
    with pytest.raises(PartitionError, match="4 clients cannot hold 10 classes, 2 each"):
        LabelQuantity(2).split(y, None, 4, generator())


def test_label_quantity_divides_a_class_that_only_the_tests_have_among_all() -> None:
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
def test_every_client_gets_the_least_even_if_all_of_them_get_no_more(
    kind: type[Dirichlet] | type[Quantity], alpha: float
) -> None:
    y = balanced(10, 100)
    assert sizes(kind(alpha, min_samples=20).split(y, None, 50, generator())) == [20] * 50
    assert min(sizes(kind(alpha, min_samples=10).split(y, None, 50, generator()))) >= 10


def test_clients_may_stay_empty_where_the_setting_says() -> None:
    parts = Dirichlet(alpha=1e-3, min_samples=0).split(balanced(4, 25), None, 50, generator())
    assert sizes(parts).count(0) > 25


class Dealt:
    """A generator whose proportions are known, and which leaves samples in their order."""

    def __init__(self, *shares: tuple[float, ...]) -> None:
        self.shares = iter(shares)

    def dirichlet(self, alpha: np.ndarray) -> np.ndarray:
        return np.array(next(self.shares))

    def permutation(self, values: np.ndarray) -> np.ndarray:
        return values


def test_a_client_with_its_even_part_gets_nothing_more_of_the_classes_that_follow() -> None:
    # Worked out by hand: 12 samples of three clients, so that four are enough. Client 0 has four
    # after class 0 and client 1 after class 1; class 2 has no sample, and class 3 is the others'.
    y = np.array([0] * 6 + [1] * 3 + [3] * 3)
    drawn = [(4 / 6, 1 / 6, 1 / 6), (0.5, 0.5, 0.0), (0.9, 0.1, 0.0), (0.5, 0.4, 0.1)]
    plain = Dirichlet().split(y, None, 3, Dealt(*drawn))
    assert [part.tolist() for part in plain] == [[0, 1, 2, 3, 6, 7, 9, 10], [4, 8, 11], [5]]
    balanced_ones = Dirichlet(self_balancing=True).split(y, None, 3, Dealt(*drawn))
    assert [part.tolist() for part in balanced_ones] == [[0, 1, 2, 3], [4, 6, 7, 8], [5, 9, 10, 11]]


def test_a_self_balancing_split_goes_on_where_those_who_may_take_drew_nothing() -> None:
    y = np.array([0] * 6 + [1] * 6)
    parts = Dirichlet(self_balancing=True).split(y, None, 3, Dealt((1, 0, 0), (1, 0, 0)))
    assert sizes(parts) == [6, 3, 3]


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_self_balancing_clients_end_nearer_to_each_other_in_size(alpha: float) -> None:
    y = balanced(10, 600)
    spread = [
        np.std(
            [sizes(Dirichlet(alpha, 1, kind).split(y, None, 10, generator(i))) for i in range(9)]
        )
        for kind in (False, True)
    ]
    assert spread[1] < 0.8 * spread[0]


def test_a_self_balancing_clients_test_part_has_the_label_mix_of_its_training_part() -> None:
    # The classes' sizes differ in the two splits, and with them who has enough, and when.
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
    parts = [
        np.array([0, 1, 2, 3, 4]),
        np.array([], np.int64),
        np.array([5, 6, 7, 8]),
        np.array([9]),
    ]
    filled = fill_up(parts, 2)
    assert [part.tolist() for part in filled] == [[0, 1, 2], [4, 3], [5, 6, 7], [9, 8]]


def test_quantity_skews_sizes_and_not_labels() -> None:
    y = balanced(4, 5000)
    parts = Quantity(alpha=0.5).split(y, None, 20, generator())
    assert max(sizes(parts)) > 20 * min(sizes(parts))
    for part in parts:
        if len(part) > 1000:
            assert np.abs(np.bincount(y[part]) / len(part) - 0.25).max() < 0.06


def test_a_user_is_never_divided_and_users_are_shared_out_evenly() -> None:
    users = generator().integers(0, 30, size=900)
    parts = ByUser().split(np.zeros(900, np.int64), users, 7, generator())
    owners = [set(users[part].tolist()) for part in parts]
    assert sorted(user for owned in owners for user in owned) == list(range(30))
    assert sorted(map(len, owners)) == [4, 4, 4, 4, 4, 5, 5]


@pytest.mark.parametrize(
    ("users", "said"),
    [
        (None, "its samples are; add users_train and users_test, one user for each sample, or"),
        ([0, 1, 2], "its test samples are; add users_test, one user for each sample, or use anoth"),
    ],
)
def test_by_user_says_which_users_are_missing(users: list[int] | None, said: str) -> None:
    y = np.arange(3)
    data = from_arrays(np.zeros((3, 2)), y, np.zeros((3, 2)), y, users=users)
    with pytest.raises(PartitionError, match=f"does not say from which users {said}") as caught:
        divide(data, ByUser(), 3, seed=1)
    assert "\n" not in str(caught.value)


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


def test_digits_can_be_divided_by_every_partition_that_needs_no_users() -> None:
    data = Digits().load(Files())
    for name, partition in PARTITIONS.items():
        if name != "by-user":
            train, test = divide(data, partition(), 20, seed=1)
            assert (sum(sizes(train)), sum(sizes(test))) == (1442, 355)


def test_mnist_gives_200_shards_of_300_to_100_clients(data_root) -> None:
    y = Mnist().load(Files(data_root)).train.y
    parts = Shards(per_client=2).split(y, None, 100, generator(1))
    assert sizes(parts) == [600] * 100
    ordered = np.sort(y)
    kinds = {tuple(ordered[start : start + 300]) for start in range(0, 60_000, 300)}
    assert all(tuple(y[part][:300]) in kinds and tuple(y[part][300:]) in kinds for part in parts)
    # A shard may lie across the border of two labels, so that a client may see four.
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


def test_normal_sizes_that_are_more_than_there_are_say_so() -> None:
    with pytest.raises(PartitionError, match=r"drew \d+ samples of 12; lower the mean"):
        NormalSizes(mean=600).split(np.zeros(12, np.int64), None, 3, generator(7))


def test_a_split_is_the_same_as_it_always_was() -> None:
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
