"""Shamir's sharing of a secret (1979): any `threshold` shares tell it, and fewer tell nothing.

The numbers are Python's. numpy has no products of 256 bits, and a product modulo a prime of this
size takes 0.2 us, so that 100 shares with threshold 52 take about 1 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

PRIME = 2**256 + 297
"""The first prime above all secrets of 32 bytes."""
SHARE_BYTES = 33


def shares(
    secret: int, coefficients: Sequence[int], places: Sequence[int], prime: int = PRIME
) -> list[int]:
    """Return the value of secret + c_1 x + c_2 x^2 + ... at each place x, modulo a prime.

    Args:
        secret: the secret.
        coefficients: c_1, c_2, ..., one fewer than the shares that tell the secret.
        places: x, each from 1 to the prime minus 1.
        prime: the modulus.
    """
    found = []
    for x in places:
        value = 0
        for one in reversed(coefficients):
            value = (value + one) * x % prime
        found.append((value + secret) % prime)
    return found


def value_at(x: int, known: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the value at x of the polynomial through the known shares, by place."""
    weights = _weights(x, tuple(known), prime)
    return sum(w * y for w, y in zip(weights, known.values(), strict=True)) % prime


def secret_of(known: Mapping[int, int], prime: int = PRIME) -> int:
    """Return the secret that the shares tell, by place."""
    return value_at(0, known, prime)


@lru_cache(maxsize=1024)
def _weights(x: int, places: tuple[int, ...], prime: int) -> tuple[int, ...]:
    """Return Lagrange's weight of each place; with a complete graph many secrets have the same."""
    found = []
    for i in places:
        above = below = 1
        for j in places:
            if j != i:
                above = above * (x - j) % prime
                below = below * (i - j) % prime
        found.append(above * pow(below, -1, prime) % prime)
    return tuple(found)
