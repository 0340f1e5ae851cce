"""Every codec: what it keeps comes back; any bytes are a vector of the right length or refused."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import LogicError, Rejected
from layers.logic.compression.codecs import (
    QuantisedCodec,
    SignCodec,
    SparseCodec,
    TernaryCodec,
    encode_sparse,
    parts_of,
)
from tests.logic.compression.codec_cases import VECTORS, parts_in, whole
from tests.logic.quadratic import Tensor

CODECS = {
    "ternary": TernaryCodec(0.2),
    "sparse": SparseCodec(0.2),
    "sign": SignCodec(),
    "8 bit": QuantisedCodec(8),
    "16 bit": QuantisedCodec(16),
}
each = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@each
@given(payload=st.binary(max_size=120), size=st.integers(0, 60), data=st.data())
def test_any_bytes_are_a_vector_of_the_announced_length_or_refused(
    codec, payload, size, data
) -> None:
    parts = data.draw(parts_in(size))
    try:
        vector = codec.decode(np.frombuffer(payload, np.uint8), parts)
    except Rejected:
        return
    assert vector.shape == (size,)
    assert vector.dtype == np.float32
    assert np.isfinite(vector).all()


@each
@given(vector=VECTORS.filter(len), flip=st.integers(0, 10**6), cut=st.integers(0, 3))
def test_a_payload_with_a_flipped_bit_or_a_cut_is_a_vector_or_refused(
    codec, vector, flip, cut
) -> None:
    parts = whole(vector.size)
    payload = codec.encode(vector, parts, rng())
    payload = np.unpackbits(payload)
    payload[flip % payload.size] ^= 1
    payload = np.packbits(payload)[: payload.size // 8 - cut]
    try:
        back = codec.decode(payload, parts)
    except Rejected:
        return
    assert back.shape == vector.shape
    assert np.isfinite(back).all()


@each
@given(vector=VECTORS, data=st.data())
def test_what_was_decoded_is_encoded_and_decoded_without_change(codec, vector, data) -> None:
    """Within rounding: a mean of equal values may differ from them in the last bit.

    So may the value of a level, and be rounded to the next one.
    """
    parts = data.draw(parts_in(vector.size))
    once = codec.decode(codec.encode(vector, parts, rng()), parts)
    assert once.shape == vector.shape
    twice = codec.decode(codec.encode(once, parts, rng()), parts)
    level = np.abs(once).max(initial=0) / getattr(codec, "levels", np.inf)
    np.testing.assert_allclose(twice, once, rtol=1e-6, atol=1.001 * level)


@each
def test_a_vector_of_zeros_is_a_vector_of_zeros(codec) -> None:
    for size in (0, 1, 9, 1000):
        zeros = np.zeros(size, np.float32)
        assert not codec.decode(codec.encode(zeros, whole(size), rng()), whole(size)).any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_and_scales_that_are_not_finite_are_refused(value) -> None:
    parts = whole(8)
    for codec in CODECS.values():
        payload = codec.encode(np.ones(8, np.float32), parts, rng())
        at = payload.tobytes().find(np.ones(1, "<f4").tobytes())
        payload[at : at + 4] = np.array([value], "<f4").view(np.uint8)
        with pytest.raises(Rejected, match="not finite"):
            codec.decode(payload, parts)


def test_scales_below_zero_are_refused() -> None:
    parts = whole(8)
    for codec in (TernaryCodec(), SignCodec(), QuantisedCodec()):
        payload = codec.encode(np.ones(8, np.float32), parts, rng())
        payload[payload.tobytes().find(np.ones(1, "<f4").tobytes()) + 3] ^= 128
        with pytest.raises(Rejected, match="negative"):
            codec.decode(payload, parts)


@each
def test_payloads_are_smaller_than_float32(codec) -> None:
    vector = np.random.default_rng(1).normal(size=20_000).astype(np.float32)
    bits = 8 * codec.encode(vector, whole(20_000), rng()).size / 20_000
    expected = {
        TernaryCodec(0.2): 0.2 * (2 + 1 / (1 - 0.8**4) + 1),
        SparseCodec(0.2): 0.2 * (2 + 1 / (1 - 0.8**4) + 32),
        SignCodec(): 1,
        QuantisedCodec(8): 8,
        QuantisedCodec(16): 16,
    }
    assert bits == pytest.approx(expected[codec], rel=0.02)


@pytest.mark.parametrize("p", [0.1, 0.01])
def test_encoding_and_decoding_take_no_more_memory_than_three_vectors(p) -> None:
    vector = np.random.default_rng(1).normal(size=300_000).astype(np.float32)
    parts = whole(vector.size)
    for codec in (TernaryCodec(p), SparseCodec(p)):
        tracemalloc.start()
        payload = codec.encode(vector, parts, rng())
        encoding = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        codec.decode(payload, parts)
        decoding = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert encoding < 3 * vector.nbytes
        assert decoding < 3 * vector.nbytes


def test_the_memory_of_decoding_is_bounded_by_the_announced_length() -> None:
    """However many positions a payload announces, and however long it is."""
    flood = np.full(4_000_000, 255, np.uint8)
    flood[:9] = encode_sparse(np.arange(2), np.zeros(2), 1000)[:9]
    for codec in CODECS.values():
        tracemalloc.start()
        with pytest.raises(Rejected):
            codec.decode(flood, whole(1000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()


@given(VECTORS, st.data())
def test_the_largest_values_come_back_in_full_and_nothing_else(vector, data) -> None:
    parts = data.draw(parts_in(vector.size))
    back = SparseCodec(0.3).decode(SparseCodec(0.3).encode(vector, parts, rng()), parts)
    for start, stop in pairwise(parts):
        tensor, kept = vector[start:stop], back[start:stop]
        k = min(np.count_nonzero(tensor), int(np.ceil(0.3 * tensor.size - 1e-9)))
        assert np.count_nonzero(kept) == k
        assert np.array_equal(kept[kept != 0], tensor[kept != 0])
        left = np.abs(tensor[kept == 0])
        assert k == 0 or left.max(initial=0) <= np.abs(kept[kept != 0]).min()


@given(VECTORS, st.data())
def test_all_values_come_back_bit_for_bit_when_all_are_kept(vector, data) -> None:
    parts = data.draw(parts_in(vector.size))
    back = SparseCodec(1.0).decode(SparseCodec(1.0).encode(vector, parts, rng()), parts)
    assert np.array_equal(back, vector)


def test_a_sign_codec_gives_each_tensor_its_mean_size() -> None:
    vector = np.array([1, -3, 0, 5, -0.5], np.float32)
    codec, parts = SignCodec(), np.array([0, 2, 4, 5])
    assert codec.decode(codec.encode(vector, parts, rng()), parts).tolist() == [
        *(2, -2),
        *(2.5, 2.5),
        -0.5,
    ]


@pytest.mark.parametrize("bits", [8, 16])
def test_quantisation_errs_by_less_than_a_level_and_not_on_average(bits) -> None:
    vector = np.random.default_rng(1).normal(size=200).astype(np.float32)
    codec, parts = QuantisedCodec(bits), whole(200)
    draws, level = rng(), np.abs(vector).max() / codec.levels
    errors = np.array(
        [codec.decode(codec.encode(vector, parts, draws), parts) - vector for _ in range(400)]
    )
    assert np.abs(errors).max() < level * 1.001
    assert np.abs(errors.mean(axis=0)).max() < 5 * level / 2 / np.sqrt(400)
    assert errors.std(axis=0).max() > 0, "rounding is random"


@given(VECTORS)
def test_quantisation_never_leaves_the_range_of_the_tensor(vector) -> None:
    codec, parts = QuantisedCodec(8), whole(vector.size)
    back = codec.decode(codec.encode(vector, parts, rng()), parts)
    assert np.abs(back).max(initial=0) <= np.abs(vector).max(initial=0) * (1 + 1e-6)


def test_the_smallest_float_can_be_quantised() -> None:
    vector = np.array([1e-45, -1e-45, 0], np.float32)
    codec = QuantisedCodec(8)
    assert np.isfinite(codec.decode(codec.encode(vector, whole(3), rng()), whole(3))).all()


def test_what_is_no_number_of_bits_is_refused() -> None:
    with pytest.raises(LogicError, match="bits must be 8 or 16, not 4"):
        QuantisedCodec(4)


def test_the_whole_vector_can_count_as_one_tensor() -> None:
    layout = [Tensor("a", (2, 2), 0, 4), Tensor("b", (3,), 4, 7)]
    assert parts_of(layout).tolist() == [0, 4, 7]
    assert parts_of(layout, flat=True).tolist() == [0, 7]
    assert parts_of([]).tolist() == [0]
