"""Bound graphs are kept as long as they do not hold too much, and for one thread."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from layers.compute.engines.mxnet.execution import GraphCache


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 400))
def test_what_is_kept_is_bounded_and_always_of_the_size_asked_for(
    sizes: list[int], rows: int
) -> None:
    cache = GraphCache(lambda size: [size], rows)
    for size in sizes:
        assert cache[size] == [size]
        assert cache[size] is cache[size]
        kept = list(cache._made)
        assert len(kept) == 1 or sum(kept) <= max(rows, 2 * max(kept))


def test_what_is_left_over_in_an_epoch_stays_with_the_full_batch() -> None:
    made: list[int] = []
    cache = GraphCache(lambda size: made.append(size) or size, 256)
    for _ in range(3):
        for size in (64, 17, 64, 33, 10):
            assert cache[size] == size
    assert made == [64, 17, 33, 10]


def test_another_thread_makes_its_own() -> None:
    cache = GraphCache(lambda size: threading.current_thread(), 256)
    got = [cache[5]]
    for _ in range(2):
        thread = threading.Thread(target=lambda: got.append(cache[5]))
        thread.start()
        thread.join()
        assert got[-1] is thread
    assert got[0] is threading.main_thread()
