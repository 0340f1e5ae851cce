"""Golomb-coded positions survive a round trip; untrusted bits decode or are rejected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import Rejected
from layers.logic.compression import golomb
from layers.logic.compression.golomb import (
    decode_head,
    encode_positions,
    pack,
    remainder_bits,
    unpack,
)
from tests.logic.compression.compression_ratio import bits_per_position, compression_ratio
from tests.logic.vector_files import vectors

NOTHING = np.zeros(0, np.uint8)


@pytest.fixture(scope="module")
def golomb_file() -> dict:
    return vectors("stc_golomb")


def bits_of(text: str) -> np.ndarray:
    return np.packbits([int(bit) for bit in text])


def test_bit_strings_equal_the_reference(golomb_file) -> None:
    given_, expected = golomb_file["inputs"]["encode"], golomb_file["expected"]["bitstrings"]
    tensor = np.array(given_["tensor"])
    positions = np.flatnonzero(tensor)
    positive = tensor[positions] > 0
    assert len(expected) == len(given_["bstar"]) == 4
    for bits, text in zip(given_["bstar"], expected, strict=True):
        stream = pack(positions, bits, positive)
        assert stream.tolist() == bits_of(text).tolist()
        back, signs = unpack(stream, positions.size, bits, tensor.size, signed=True)
        assert back.tolist() == positions.tolist()
        assert signs.tolist() == positive.tolist()


def test_parameters_and_ratios_equal_the_reference(golomb_file) -> None:
    table = golomb_file["expected"]["table"]
    assert [row["p"] for row in table] == golomb_file["inputs"]["p_list"]
    for row in table:
        p = row["p"]
        assert remainder_bits(p) == row["bstar"]
        assert bits_per_position(p) == pytest.approx(row["position_bits_per_nonzero"])
        assert compression_ratio(p) == pytest.approx(row["ratio_vs_fp32"])
        assert compression_ratio(p, sattler=True) == pytest.approx(row["sattler_code_ratio"])


def test_streams_of_random_positions_have_the_expected_length() -> None:
    rng = np.random.default_rng(1)
    for p in (0.5, 0.1, 0.01, 0.001):
        positions = np.flatnonzero(rng.random(300_000) < p)
        stream = pack(positions, remainder_bits(p))
        bits = 8 * stream.size / positions.size
        assert bits == pytest.approx(bits_per_position(p), rel=0.05)


@given(
    st.sets(st.integers(0, 5000), max_size=300),
    st.integers(0, 14),
    st.booleans(),
    st.integers(0, 99),
)
def test_positions_survive_a_round_trip(positions, bits, signed, beyond) -> None:
    positions = np.array(sorted(positions), np.int64)
    positive = positions % 3 == 0 if signed else None
    size = (int(positions[-1]) + 1 if positions.size else 0) + beyond
    stream = pack(positions, bits, positive)
    back, signs = unpack(stream, positions.size, bits, size, signed)
    assert back.tolist() == positions.tolist()
    assert signs.tolist() == ([] if positive is None else positive.tolist())


@pytest.mark.parametrize("p", [1.0, 0.7, 0.3, 0.1, 0.01, 0.0001])
def test_positions_survive_a_round_trip_over_many_blocks(p) -> None:
    rng = np.random.default_rng(2)
    size = 400_000
    positions = np.flatnonzero(rng.random(size) < p)
    positive = rng.random(positions.size) < 0.5
    bits = remainder_bits(p)
    stream = pack(positions, bits, positive)
    back, signs = unpack(stream, positions.size, bits, size, signed=True)
    assert np.array_equal(back, positions)
    assert np.array_equal(signs, positive)


def test_codes_longer_than_a_block_survive_a_round_trip() -> None:
    """With b = 0 a gap of n takes n ones."""
    size = 7 * golomb.BLOCK_BITS
    for positions in ([size - 1], [0, size - 1], [5 * golomb.BLOCK_BITS, size - 1]):
        stream = pack(np.array(positions), 0)
        back, _ = unpack(stream, len(positions), 0, size)
        assert back.tolist() == positions


@given(
    st.binary(max_size=60), st.integers(0, 80), st.integers(0, 9), st.integers(0, 90), st.booleans()
)
def test_any_bits_decode_to_positions_or_are_rejected(stream, count, bits, size, signed) -> None:
    count = min(count, size)
    stream = np.frombuffer(stream, np.uint8)
    try:
        positions, signs = unpack(stream, count, bits, size, signed)
    except Rejected:
        return
    assert positions.size == count
    assert np.all(np.diff(positions, prepend=-1) > 0)
    assert count == 0 or positions[-1] < size
    again = pack(positions, bits, signs if signed else None)
    assert again.tolist() == stream.tolist(), "each list of positions has one stream"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s[:-1], "end before the last"),
        (lambda s: np.append(s, np.uint8(0)), "take fewer"),
        (lambda s: np.append(s, np.full(90, 255, np.uint8)), "take fewer"),
        (lambda s: s | (np.arange(s.size) == s.size - 1).astype(np.uint8), "go on after"),
        (lambda s: NOTHING, "end before the last"),
        (lambda s: np.full_like(s, 255), "end before the last"),
    ],
)
def test_a_stream_that_is_cut_too_long_or_wrongly_padded_is_rejected(change, reason) -> None:
    positions = np.array([1, 5, 6, 40, 97])
    stream = pack(positions, 3)
    with pytest.raises(Rejected, match=reason):
        unpack(change(stream), 5, 3, 100)


def test_too_many_positions_and_a_wasteful_parameter_are_rejected() -> None:
    with pytest.raises(Rejected, match="9 positions"):
        decode_head(encode_positions(np.arange(9), 9, NOTHING), 8)
    head = encode_positions(np.arange(0, 100, 10), 100, NOTHING)
    count, bits, _ = decode_head(head, 100)
    assert (count, bits) == (10, remainder_bits(0.1))
    head[8] = bits + 2
    with pytest.raises(Rejected, match="5 bits of remainder"):
        decode_head(head, 100)
    with pytest.raises(Rejected, match="payload of 8 bytes"):
        decode_head(head[:8], 100)


@pytest.mark.parametrize("size", [0, 5])
def test_no_positions_are_sent_as_a_head_of_zeros(size) -> None:
    payload = encode_positions(np.zeros(0, np.int64), size, NOTHING)
    assert payload.tolist() == [0] * 9
    assert decode_head(payload, size)[:2] == (0, 0)


def test_a_huge_count_takes_no_memory() -> None:
    head = encode_positions(np.arange(3), 10, NOTHING)
    head[:8] = 255
    with pytest.raises(Rejected, match="vector of 10"):
        decode_head(head, 10)
