"""Every codec: what it keeps comes back, and any bytes decode to a vector or are rejected."""

from __future__ import annotations

import dataclasses
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from layers.logic import LogicError, Rejected
from layers.logic.compression.codecs import (
    QuantisedCodec,
    SignCodec,
    SparseCodec,
    TernaryCodec,
    decode_ternary,
    encode_sparse,
    encode_ternary,
    kept_of,
    parts_of,
    ternarise,
)
from tests.logic.compression.compression_ratio import bits_per_position
from tests.logic.quadratic import Tensor
from tests.logic.vector_files import CLOSE, vectors

CODECS = {
    "ternary": TernaryCodec(0.05),
    "sparse": SparseCodec(0.05),
    "signs": SignCodec(),
    "quantised-8": QuantisedCodec(8),
    "quantised-16": QuantisedCodec(16),
}
"""One of each codec, which `tests.fuzz` uses by these names."""
each = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
VALUES = st.floats(-(2.0**60), 2.0**60, width=32)
VECTORS = hnp.arrays(np.float32, st.integers(0, 200), elements=VALUES)


def whole(size: int) -> np.ndarray:
    """Return the boundaries of one tensor."""
    return np.array([0, size], np.int64)


@st.composite
def parts_in(draw, size: int) -> np.ndarray:
    """Return the boundaries of some tensors, empty ones among them."""
    inner = draw(st.lists(st.integers(0, size), max_size=4))
    return np.array([0, *sorted(inner), size], np.int64)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@each
@given(payload=st.binary(max_size=120), size=st.integers(0, 60), data=st.data())
def test_any_bytes_decode_to_a_vector_of_the_right_length_or_are_rejected(
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
def test_a_corrupt_payload_decodes_to_a_vector_or_is_rejected(codec, vector, flip, cut) -> None:
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
def test_a_decoded_vector_survives_another_round_trip(codec, vector, data) -> None:
    """Within rounding: a mean of equal values may differ from them in the last bit.

    So may the value of a level, and be rounded to the next one.
    """
    parts = data.draw(parts_in(vector.size))
    once = codec.decode(codec.encode(vector, parts, rng()), parts)
    assert once.shape == vector.shape
    twice = codec.decode(codec.encode(once, parts, rng()), parts)
    level = np.abs(once).max(initial=0) / getattr(codec, "levels", np.inf)
    np.testing.assert_allclose(twice, once, rtol=1e-6, atol=1.001 * level)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_and_scales_that_are_not_finite_are_rejected(value) -> None:
    parts = whole(8)
    for codec in CODECS.values():
        payload = codec.encode(np.ones(8, np.float32), parts, rng())
        at = payload.tobytes().find(np.ones(1, "<f4").tobytes())
        payload[at : at + 4] = np.array([value], "<f4").view(np.uint8)
        with pytest.raises(Rejected, match="not finite"):
            codec.decode(payload, parts)


def test_negative_scales_are_rejected() -> None:
    parts = whole(8)
    for codec in (TernaryCodec(), SignCodec(), QuantisedCodec()):
        payload = codec.encode(np.ones(8, np.float32), parts, rng())
        payload[payload.tobytes().find(np.ones(1, "<f4").tobytes()) + 3] ^= 128
        with pytest.raises(Rejected, match="negative"):
            codec.decode(payload, parts)


@pytest.mark.parametrize("name", CODECS)
def test_payloads_have_the_expected_size(name) -> None:
    codec, vector = CODECS[name], np.random.default_rng(1).normal(size=20_000).astype(np.float32)
    bits = 8 * codec.encode(vector, whole(20_000), rng()).size / 20_000
    position = bits_per_position(0.05)
    expected = {
        "ternary": 0.05 * (position + 1),
        "sparse": 0.05 * (position + 32),
        "signs": 1,
        "quantised-8": 8,
        "quantised-16": 16,
    }
    assert bits == pytest.approx(expected[name], rel=0.02)


@pytest.mark.parametrize("p", [0.1, 0.01])
def test_encoding_and_decoding_take_less_memory_than_three_vectors(p) -> None:
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


def test_the_vectors_length_bounds_the_memory_of_decoding() -> None:
    """A payload may announce many positions and be very long."""
    flood = np.full(4_000_000, 255, np.uint8)
    flood[:9] = encode_sparse(np.arange(2), np.zeros(2), 1000)[:9]
    for codec in CODECS.values():
        tracemalloc.start()
        with pytest.raises(Rejected):
            codec.decode(flood, whole(1000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()


@given(VECTORS, st.data())
def test_sparse_keeps_exactly_the_largest_values(vector, data) -> None:
    parts = data.draw(parts_in(vector.size))
    back = SparseCodec(0.3).decode(SparseCodec(0.3).encode(vector, parts, rng()), parts)
    for start, stop in pairwise(parts):
        tensor, kept = vector[start:stop], back[start:stop]
        k = min(np.count_nonzero(tensor), int(np.ceil(0.3 * tensor.size - 1e-9)))
        assert np.count_nonzero(kept) == k
        assert np.array_equal(kept[kept != 0], tensor[kept != 0])
        left = np.abs(tensor[kept == 0])
        assert k == 0 or left.max(initial=0) <= np.abs(kept[kept != 0]).min()


def test_sign_keeps_the_mean_magnitude_of_each_tensor() -> None:
    vector = np.array([1, -3, 0, 5, -0.5], np.float32)
    codec, parts = SignCodec(), np.array([0, 2, 4, 5])
    assert codec.decode(codec.encode(vector, parts, rng()), parts).tolist() == [
        *(2, -2),
        *(2.5, 2.5),
        -0.5,
    ]


@pytest.mark.parametrize(("bits", "most"), [(8, 127), (16, 32767)])
def test_values_on_a_level_are_sent_as_its_number_and_come_back_exactly(bits, most) -> None:
    parts = np.array([0, 4, 6, 7, 8])
    levels = np.array([most, -most, 5, 0, 1, -most, 0, -most])
    units = [2.0**-20, 0.5, 1.0, 64.0]
    vector = (np.repeat(units, np.diff(parts)) * levels).astype(np.float32)
    payload = QuantisedCodec(bits).encode(vector, parts, rng())
    scales = np.frombuffer(payload[:16].tobytes(), "<f4")
    assert scales.tolist() == [most * 2.0**-20, most * 0.5, 0, most * 64.0]
    assert payload[16:].tobytes() == levels.astype(f"<i{bits // 8}").tobytes()
    assert QuantisedCodec(bits).decode(payload, parts).tolist() == vector.tolist()


@pytest.mark.parametrize("bits", [8, 16])
def test_quantisation_errors_are_below_a_level_and_unbiased(bits) -> None:
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
def test_quantisation_stays_in_the_range_of_the_tensor(vector) -> None:
    codec, parts = QuantisedCodec(8), whole(vector.size)
    back = codec.decode(codec.encode(vector, parts, rng()), parts)
    assert np.abs(back).max(initial=0) <= np.abs(vector).max(initial=0) * (1 + 1e-6)


def test_other_numbers_of_bits_are_refused() -> None:
    with pytest.raises(LogicError, match=r"bits .* not 4"):
        QuantisedCodec(4)


def test_the_whole_vector_can_count_as_one_tensor() -> None:
    layout = [Tensor("a", (2, 2), 0, 4), Tensor("b", (3,), 4, 7)]
    assert parts_of(layout).tolist() == [0, 4, 7]
    assert parts_of(layout, flat=True).tolist() == [0, 7]
    assert parts_of([]).tolist() == [0]


# --- sparse ternary compression --------------------------------------------------------------


@pytest.fixture(scope="module")
def cases() -> list[tuple[dict, dict]]:
    file = vectors("stc_compress")
    return list(zip(file["inputs"]["cases"], file["expected"]["cases"], strict=True))


@pytest.mark.parametrize(
    ("how", "settings"),
    [("plain", {}), ("exact_k", {"exact_k": True}), ("literal_alg1", {"literal": True})],
)
def test_ternary_equals_the_reference(cases, how, settings) -> None:
    for given_, expected in cases:
        tensor = np.array(given_["tensor"], np.float32)
        parts = whole(tensor.size)
        wanted = expected if how == "plain" else expected[how]
        codec = TernaryCodec(given_["p"], **settings)
        payload = codec.encode(tensor.ravel(), parts, np.random.default_rng(0))
        found = codec.decode(payload, parts)
        output = np.array(wanted["output"]).ravel()
        np.testing.assert_allclose(found, output, **CLOSE, err_msg=given_["name"])
        assert np.array_equal(found != 0, output != 0), given_["name"]
        ternary = decode_ternary(payload, parts)
        np.testing.assert_allclose(ternary.scales, [wanted["mu"]], **CLOSE)
        assert kept_of(tensor.size, given_["p"]) == expected["k"]


def test_ties_are_all_kept_or_the_first_positions_win() -> None:
    tensor = np.array([1, -2, 2, 0.5, 2, -2], np.float32)
    assert ternarise(tensor, whole(6), 0.3).positions.tolist() == [1, 2, 4, 5]
    assert ternarise(tensor, whole(6), 0.3, exact_k=True).positions.tolist() == [1, 2]
    assert ternarise(tensor, whole(6), 0.8, exact_k=True).positions.tolist() == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("p", [0, -0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(p) -> None:
    with pytest.raises(LogicError, match=r"^p must be"):
        TernaryCodec(p)


@given(VECTORS, st.floats(0.01, 1), st.booleans(), st.data())
def test_a_ternary_vector_survives_a_round_trip(vector, p, exact_k, data) -> None:
    parts = data.draw(parts_in(vector.size))
    ternary = ternarise(vector, parts, p, exact_k)
    back = decode_ternary(encode_ternary(ternary), parts)
    assert np.array_equal(back.positions, ternary.positions)
    assert np.array_equal(back.positive, ternary.positive)
    assert back.scales.tobytes() == ternary.scales.tobytes()
    dense = back.dense()
    assert np.array_equal(np.sign(dense[dense != 0]), np.sign(vector[dense != 0]))
    again = encode_ternary(back)
    assert again.tobytes() == encode_ternary(ternary).tobytes()


def test_the_parameter_of_the_code_follows_the_whole_vector_and_not_one_tensor() -> None:
    vector = np.random.default_rng(3).normal(size=10_000).astype(np.float32)
    ternary = ternarise(vector, np.array([0, 40, 10_000]), 0.01)
    alone = dataclasses.replace(ternary, parts=whole(10_000))
    assert encode_ternary(ternary).tobytes() == encode_ternary(alone).tobytes()
