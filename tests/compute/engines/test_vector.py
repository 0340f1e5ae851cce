"""The flat vector: whole for numpy, in tensors for MXNet, one memory."""

from __future__ import annotations

import mxnet as mx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.compute.engines.mxnet.parameters import FlatVector, aligned, lay_out, share, size

SHAPES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), max_size=6)


@settings(max_examples=50, deadline=None)
@given(SHAPES)
def test_a_layout_leaves_no_gap_and_keeps_the_order(shapes: list[tuple[int, ...]]) -> None:
    layout = lay_out((f"t{i}", shape) for i, shape in enumerate(shapes))
    assert [t.shape for t in layout] == shapes
    assert [t.start for t in layout] == [0, *(t.stop for t in layout)][: len(layout)]
    assert size(layout) == sum(int(np.prod(shape)) for shape in shapes)


@settings(max_examples=30, deadline=None)
@given(SHAPES, st.integers(0, 2**32 - 1))
def test_what_numpy_writes_mxnet_reads_and_the_other_way_round(
    shapes: list[tuple[int, ...]], seed: int
) -> None:
    vector = FlatVector(lay_out((f"t{i}", shape) for i, shape in enumerate(shapes)))
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
    vector = FlatVector(lay_out([("a", (3,))]))
    assert not vector.readonly.flags.writeable
    vector.array[...] = 2
    assert vector.readonly.tolist() == [2, 2, 2]


def test_a_shared_array_stays_writable() -> None:
    array = aligned((4,))
    view = share(array)
    array[1] = 7
    assert view.asnumpy().tolist() == [0, 7, 0, 0]
