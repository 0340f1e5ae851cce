"""Sizes of clients: a mapping like any other, of which nothing is derived twice."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import OpenRound
from layers.logic.client_sizes import ClientSizes

MANY = 10**12  # no memory holds one number for each


@given(samples=st.dictionaries(st.integers(0, 50), st.integers(0, 9), max_size=20))
def test_client_sizes_equal_their_mapping(samples: Mapping[int, int]) -> None:
    sizes = ClientSizes.of(samples)
    assert dict(sizes) == samples
    assert list(sizes) == sorted(samples)
    having = [client for client in sorted(samples) if samples[client]]
    assert list(sizes.clients) == sizes.ids.tolist() == having
    assert sizes.sizes.tolist() == [samples[client] for client in having]
    assert sizes.end == max(samples, default=-1) + 1
    assert [client in sizes for client in range(-1, 52)] == [c in samples for c in range(-1, 52)]


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=20), data=st.data())
def test_only_keeps_the_sizes_of_some_clients(sizes: list[int], data: st.DataObject) -> None:
    whole = ClientSizes(range(len(sizes)), np.array(sizes, np.int64))
    assert dict(whole) == dict(enumerate(sizes))
    some = sorted(data.draw(st.sets(st.sampled_from(range(len(sizes))))))
    assert dict(whole.only(np.array(some, np.int64))) == {one: sizes[one] for one in some}


def test_an_unknown_client_has_no_size() -> None:
    for sizes in (ClientSizes(range(3), 7), ClientSizes.of({0: 7, 2: 7})):
        for absent in (-1, 3, "0", None):
            assert absent not in sizes
            with pytest.raises(KeyError):
                sizes[absent]  # type: ignore[index]


def test_equal_sizes_take_no_memory_by_client() -> None:
    sizes = ClientSizes(range(MANY), 20)
    round = OpenRound(sizes)
    assert (len(sizes), sizes[MANY - 1], sizes.end, MANY in sizes) == (MANY, 20, MANY, False)
    assert round.clients == range(MANY)
    assert round.all_clients == MANY
    assert round.has(MANY - 1)
    assert not round.has(MANY)


def test_once_calls_make_once_for_each_name() -> None:
    sizes, made = ClientSizes(range(3), 7), []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [sizes.once("a", make), sizes.once("a", make), sizes.once("b", make)] == [1, 1, 2]


@pytest.mark.parametrize("clients", [range(3), np.array([1, 4, 5]), range(0)])
def test_no_client_is_listed_if_none_has_samples(clients: range | np.ndarray) -> None:
    for sizes in (ClientSizes(clients, 0), ClientSizes(clients, np.zeros(len(clients), np.int64))):
        assert list(sizes) == list(clients)
        assert list(sizes.clients) == []
        assert sizes.ids.shape == sizes.sizes.shape == (0,)
