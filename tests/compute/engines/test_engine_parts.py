"""The parts of the engine: the flat vector, the cache of graphs, the reported loss."""

from __future__ import annotations

import math
import threading

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.arithmetic import PART
from layers.compute.data.targets import Targets
from layers.compute.engines import layout as layout_of
from layers.compute.engines.graphs import GraphCache
from layers.compute.engines.layout import aligned, lay_out
from layers.compute.engines.mxnet.parameters import SharedVector, share
from layers.compute.engines.training import STEPS, ReportedLoss
from layers.compute.errors import ComputeError
from layers.compute.losses import OWN_LOSSES, Softmax

SHAPES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), max_size=6)


@settings(max_examples=50, deadline=None)
@given(SHAPES)
def test_a_layout_leaves_no_gap_and_keeps_the_order(shapes: list[tuple[int, ...]]) -> None:
    layout = lay_out((f"t{i}", shape) for i, shape in enumerate(shapes))
    assert [t.shape for t in layout] == shapes
    assert [t.start for t in layout] == [0, *(t.stop for t in layout)][: len(layout)]
    assert layout_of.size(layout) == sum(int(np.prod(shape)) for shape in shapes)


@settings(max_examples=30, deadline=None)
@given(SHAPES, st.integers(0, 2**32 - 1))
def test_numpy_and_mxnet_share_the_memory_of_a_flat_vector(
    shapes: list[tuple[int, ...]], seed: int
) -> None:
    vector = SharedVector(lay_out((f"t{i}", shape) for i, shape in enumerate(shapes)))
    vector.array[...] = np.random.default_rng(seed).normal(size=vector.array.size)
    for t in vector.layout:
        part = vector.array[t.start : t.stop].reshape(t.shape)
        assert vector.views[t.name].asnumpy().tobytes() == part.tobytes()
        vector.views[t.name] += 1
    before = np.random.default_rng(seed).normal(size=vector.array.size).astype("f")
    mx.nd.waitall()
    assert vector.array.tobytes() == (before + np.float32(1)).tobytes()


def test_a_vector_starts_on_a_64_byte_boundary() -> None:
    for length in range(1, 40):
        assert aligned((length,)).ctypes.data % 64 == 0


def test_the_readonly_view_cannot_be_written() -> None:
    vector = SharedVector(lay_out([("a", (3,))]))
    assert not vector.readonly.flags.writeable
    vector.array[...] = 2
    assert vector.readonly.tolist() == [2, 2, 2]


def test_a_shared_array_stays_writable() -> None:
    array = aligned((4,))
    view = share(array)
    array[1] = 7
    assert view.asnumpy().tolist() == [0, 7, 0, 0]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 400))
def test_the_cache_is_bounded_and_returns_the_asked_batch_size(sizes: list[int], rows: int) -> None:
    cache = GraphCache(lambda size: [size], rows)
    for size in sizes:
        assert cache[size] == [size]
        assert cache[size] is cache[size]
        kept = list(cache._made)
        assert len(kept) == 1 or sum(kept) <= max(rows, 2 * max(kept))


def test_the_graph_of_an_epochs_last_batch_stays_in_the_cache() -> None:
    made: list[int] = []
    cache = GraphCache(lambda size: made.append(size) or size, 256)
    for _ in range(3):
        for size in (64, 17, 64, 33, 10):
            assert cache[size] == size
    assert made == [64, 17, 33, 10]


def test_two_large_batches_stay_in_the_cache_up_to_twice_the_largest() -> None:
    made: list[int] = []
    cache = GraphCache(lambda size: made.append(size) or size, 100)
    for _ in range(2):
        for size in (90, 60, 30):
            assert cache[size] == size
    assert made == [90, 60, 30]
    assert (cache[1], cache[90], made) == (1, 90, [90, 60, 30, 1, 90])


def test_another_thread_makes_its_own_graph() -> None:
    cache = GraphCache(lambda size: threading.current_thread(), 256)
    got = [cache[5]]
    for _ in range(2):
        thread = threading.Thread(target=lambda: got.append(cache[5]))
        thread.start()
        thread.join()
        assert got[-1] is thread
    assert got[0] is threading.main_thread()


@pytest.mark.parametrize(
    "sizes", [[1], [3, 3, 2], [2] * STEPS, [2] * (2 * STEPS + 5), [PART, PART + 1, 7]]
)
def test_the_reported_loss_is_the_mean_of_the_mini_batches_means(sizes: list[int]) -> None:
    rng = np.random.default_rng(len(sizes))
    y = rng.integers(0, 3, sum(sizes))
    reported = ReportedLoss(Softmax().reported, y)
    means, squares, order = [], [], rng.permutation(len(y))
    for rows in np.split(order, np.cumsum(sizes)[:-1]):
        probabilities = rng.dirichlet(np.ones(3), len(rows)).astype(np.float32)
        reported.add(probabilities, rows)
        losses = -np.log(probabilities[np.arange(len(rows)), y[rows]].astype(np.float64))
        means.append(losses.mean())
        squares.append((losses**2).mean())
        probabilities[:] = 0  # the engine fills the same array again
        assert len(reported._waiting) < STEPS
    mean, root = reported.means()
    assert mean == pytest.approx(np.mean(means), rel=1e-12)
    assert root == pytest.approx(math.sqrt(np.mean(squares)), rel=1e-12)


def test_the_reported_loss_is_nan_without_a_mini_batch() -> None:
    mean, root = ReportedLoss(Softmax().reported, np.zeros(0, np.int64)).means()
    assert math.isnan(mean)
    assert math.isnan(root)


@pytest.mark.parametrize(
    ("name", "refused", "accepted"), [("softmax", (1,), (2,)), ("sigmoid", (0, 1, 3), (2,))]
)
def test_a_loss_refuses_numbers_of_classes_that_it_cannot_tell_apart(
    name: str, refused: tuple[int, ...], accepted: tuple[int, ...]
) -> None:
    for classes in refused:
        with pytest.raises(ComputeError, match="classes"):
            OWN_LOSSES[name]().check(Targets("classes", classes))
    for classes in accepted:
        OWN_LOSSES[name]().check(Targets("classes", classes))
