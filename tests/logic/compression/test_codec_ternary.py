"""STC of a tensor is what the algorithm says, and travels without loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from layers.logic import LogicError
from layers.logic.compression.codecs import (
    TernaryCodec,
    decode_ternary,
    encode_ternary,
    kept_of,
    ternarise,
)
from tests.logic.compression.codec_cases import VECTORS, parts_in, whole
from tests.logic.vector_files import CLOSE, vectors


@pytest.fixture(scope="module")
def cases() -> list[tuple[dict, dict]]:
    file = vectors("stc_compress")
    return list(zip(file["inputs"]["cases"], file["expected"]["cases"], strict=True))


@pytest.mark.parametrize(
    ("how", "settings"),
    [("plain", {}), ("exact_k", {"exact_k": True}), ("literal_alg1", {"literal": True})],
)
def test_what_is_decoded_is_what_was_worked_out(cases, how, settings) -> None:
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


def test_ties_are_kept_or_the_first_ones_win() -> None:
    tensor = np.array([1, -2, 2, 0.5, 2, -2], np.float32)
    assert ternarise(tensor, whole(6), 0.3).positions.tolist() == [1, 2, 4, 5]
    assert ternarise(tensor, whole(6), 0.3, exact_k=True).positions.tolist() == [1, 2]
    assert ternarise(tensor, whole(6), 0.8, exact_k=True).positions.tolist() == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("p", [0, -0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(p) -> None:
    with pytest.raises(LogicError, match="p must be more than 0 and at most 1"):
        TernaryCodec(p)


def test_tensors_of_any_size_and_none_have_scales_of_their_own() -> None:
    vector = np.array([3, -1, 0, 0, 7], np.float32)
    parts = np.array([0, 2, 2, 4, 5])
    ternary = ternarise(vector, parts, 1.0)
    assert ternary.scales.tolist() == [2, 0, 0, 7]
    assert ternary.dense().tolist() == [2, -2, 0, 0, 7]
    assert ternarise(vector[:0], np.zeros(1, np.int64), 0.1).dense().size == 0


@given(VECTORS, st.floats(0.01, 1), st.booleans(), st.data())
def test_a_ternary_vector_comes_back(vector, p, exact_k, data) -> None:
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


@given(hnp.arrays(np.float32, 40, elements=st.integers(-3, 3).map(float)), st.floats(0.01, 1))
def test_at_least_k_values_are_kept_unless_there_are_only_zeros(vector, p) -> None:
    k = kept_of(40, p)
    kept = ternarise(vector, whole(40), p).positions.size
    exact = ternarise(vector, whole(40), p, exact_k=True).positions.size
    nonzero = np.count_nonzero(vector)
    assert min(k, nonzero) <= kept <= nonzero
    assert exact == min(k, nonzero)
