"""Each row of the vectors, through the parts that a round calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic.errors import LogicError
from layers.logic.secure_sum.graph import Degree, degree_for, neighbours_on_ring, sparse_degree
from layers.logic.secure_sum.keys import PAIR_MASK, agreed, derived, mask, pair_key, public_of
from layers.logic.secure_sum.shamir import PRIME, secret_of, shares, value_at
from layers.logic.secure_sum.whole_numbers import (
    dequantised,
    packed,
    packed_bytes,
    quantised,
    unpacked,
    word_bits,
)
from tests.logic.vector_files import vectors


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text)


def test_keys_are_derived_as_in_the_vectors() -> None:
    for row in vectors("secagg")["hkdf_sha256"]:
        ikm, salt, info = (bytes_of(row[name]) for name in ("ikm", "salt", "info"))
        assert derived(ikm, info, salt, row["length"]) == bytes_of(row["okm"])


def test_masks_are_those_of_the_vectors() -> None:
    for row in vectors("secagg")["prg"]:
        key, size = bytes_of(row["key"]), row["words"]
        assert mask(key, size).tolist() == row["mask_u32"]
        longer = mask(key, len(row["mask_u64"]), "<u8")
        assert longer.tolist() == [int(word) for word in row["mask_u64"]]


def test_two_clients_agree_on_the_key_of_their_mask() -> None:
    row = vectors("secagg")["agreement"]
    a, b = (bytes_of(row[f"private_{one}"]) for one in "ab")
    assert [public_of(a).hex(), public_of(b).hex()] == [row["public_a"], row["public_b"]]
    common = agreed(a, public_of(b))
    assert common == agreed(b, public_of(a)) == bytes_of(row["x25519"])
    assert row["pair_key_hkdf"]["info"] == PAIR_MASK.hex()
    assert derived(common, PAIR_MASK).hex() == row["pair_key_hkdf"]["key"]
    assert pair_key(a, public_of(b)).hex() == row["pair_key_hkdf"]["key"]


def test_shares_tell_the_secret_and_one_too_few_tell_another() -> None:
    for row in vectors("secagg")["shamir"]:
        prime, secret = int(row["prime"]), int(row["secret"])
        known = {x: int(y) for x, y in row["shares"]}
        made = shares(secret, list(map(int, row["coefficients"])), list(known), prime)
        assert made == list(known.values())
        some = {x: known[x] for x in row["subset"]}
        assert secret_of(some, prime) == int(row["reconstructed"]) == secret
        fewer = dict(list(some.items())[:-1])
        assert secret_of(fewer, prime) == int(row["one_too_few_gives"])


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.data())
def test_any_secret_of_32_bytes_comes_back_and_so_does_every_share(key, threshold, data) -> None:
    numbers = st.integers(0, PRIME - 1)
    coefficients = data.draw(st.lists(numbers, min_size=threshold - 1, max_size=threshold - 1))
    secret, places = int.from_bytes(key, "little"), range(1, threshold + 3)
    made = dict(zip(places, shares(secret, coefficients, places), strict=True))
    some = data.draw(st.permutations(list(made)))[:threshold]
    known = {x: made[x] for x in some}
    assert secret_of(known).to_bytes(32, "little") == key
    assert all(value_at(x, known) == y for x, y in made.items())


def parameter_rows() -> list[dict]:
    return vectors("secagg")["parameters"]


def test_degree_and_threshold_are_those_of_the_tables() -> None:
    wrong = []
    for row in parameter_rows():
        server = "malicious" if row["server"] == "malicious" else "honest"
        found = sparse_degree(
            *(row[name] for name in ("clients", "gamma", "delta")),
            server,
            row["sigma"],
            row["eta"],
        )
        known = row.get("threshold", row.get("threshold_at_most"))
        if found != Degree(row["degree"], known):
            wrong.append((row, found))
    assert wrong == []


def test_a_round_has_the_degree_of_the_tables_beyond_100_clients_and_all_before() -> None:
    assert degree_for(1000) == Degree(52, 37)
    assert degree_for(1000, "honest") == Degree(30, 17)
    for clients in range(3, 101):
        for server in ("malicious", "honest"):
            found, corrupt = degree_for(clients, server), clients // 20
            assert found.neighbours == clients - 1
            assert corrupt < found.threshold, "those in league with the server open no mask"
            if server == "malicious":
                assert 2 * found.threshold > found.neighbours + corrupt
            if clients > 3:
                assert found.threshold <= found.neighbours - clients // 3, "a third may be lost"


@pytest.mark.parametrize("clients", [0, 1, 2])
def test_a_sum_of_fewer_than_three_clients_is_refused(clients) -> None:
    with pytest.raises(LogicError, match="needs 3"):
        degree_for(clients)


def test_the_graph_is_that_of_the_vectors() -> None:
    found = vectors("secagg")
    for row in [*found["graph"], *found["protocol"]]:
        assert neighbours_on_ring(row["perm"], row["degree"]) == row["neighbours"]


def test_values_are_rounded_and_summed_as_in_the_vectors() -> None:
    for row in vectors("secagg")["quantise"]:
        values, clip, bits = np.array(row["values"]), row["clip"], row["bits"]
        nearest = quantised(values, clip, bits)
        assert nearest.tolist() == row["nearest_even"]
        drawn = quantised(values, clip, bits, np.array(row["uniforms"]))
        assert drawn.tolist() == row["stochastic"]
        back = dequantised(nearest.astype(np.int64), 1, clip, bits)
        np.testing.assert_allclose(back, row["dequantised_nearest"], rtol=0, atol=1e-12)
        most = row.get("clients_that_fit_u32")
        if most is not None:
            assert most * (2**bits - 1) < 2**32 <= (most + 1) * (2**bits - 1)


@given(st.integers(1, 32), st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_packed_words_come_back(bits, words) -> None:
    given_words = np.array(words, np.uint32)
    data = packed(given_words, bits)
    assert (data.dtype, data.size) == (np.uint8, packed_bytes(given_words.size, bits))
    back = unpacked(data, given_words.size, bits)
    assert back.tolist() == [word % 2**bits for word in words]
    whole = sum((word % 2**bits) << (bits * i) for i, word in enumerate(words))
    assert int.from_bytes(data.tobytes(), "little") == whole


def test_a_word_has_room_for_the_sum_of_all_clients() -> None:
    assert [word_bits(one) for one in (1, 2, 3, 1000, 1024, 1025, 65536)] == [
        *(16, 17, 18, 26, 26, 27, 32)
    ]
    with pytest.raises(ValueError, match="65537"):
        word_bits(65537)
    for clients in range(1, 3000):
        assert clients * (2**16 - 1) < 2 ** word_bits(clients)
