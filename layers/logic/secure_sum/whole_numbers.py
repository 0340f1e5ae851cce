"""Whole numbers in place of real ones, whose sum modulo 2^b is exact, and their packing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

VALUE_BITS = 16
MOST_BITS = 32  # of a word


def word_bits(clients: int, bits: int = VALUE_BITS) -> int:
    """Return b, the bits of a word in which the sum of so many values has room.

    Raises:
        ValueError: there are too many clients for a word.
    """
    width = bits + math.ceil(math.log2(clients)) if clients > 1 else bits
    if width > MOST_BITS:
        raise ValueError(f"a sum of {clients} values of {bits} bits is longer than {MOST_BITS}")
    return width


def quantised(
    values: np.ndarray, clip: float, bits: int = VALUE_BITS, uniforms: np.ndarray | None = None
) -> np.ndarray:
    """Return whole numbers from 0 to 2^bits - 1, uint32, for values from -clip to clip.

    Args:
        values: any values; those beyond the clip count as the clip.
        clip: C.
        bits: of a whole number.
        uniforms: numbers from 0 to below 1, for stochastic rounding, whose expectation is the
            value; None: rounds to the nearest, and halves to even.
    """
    scaled = (np.clip(values.astype(np.float64), -clip, clip) + clip) * (2**bits - 1) / (2 * clip)
    return rounded(scaled, uniforms).astype(np.uint32)


def rounded(values: np.ndarray, uniforms: np.ndarray | None) -> np.ndarray:
    """Return whole numbers, float64: the nearest ones, or by chance one of both beside each value.

    Args:
        values: float64.
        uniforms: as in `quantised`.
    """
    if uniforms is None:
        return np.asarray(np.rint(values))
    whole = np.floor(values)
    return np.asarray(whole + (uniforms < values - whole))


def dequantised(total: np.ndarray, number: int, clip: float, bits: int = VALUE_BITS) -> np.ndarray:
    """Return the sum of values, float64, from the sum of the whole numbers of so many clients."""
    found: np.ndarray = total * (2 * clip / (2**bits - 1)) - number * clip
    return found


def packed_bytes(size: int, bits: int) -> int:
    """Return the bytes of so many packed words."""
    return -(-size * bits // 8)


def packed(words: np.ndarray, bits: int) -> np.ndarray:
    """Return uint8 with the lowest bits of each word of 32 bits, one word after the other.

    Args:
        words: uint32 (d,).
        bits: of each word, from 1 to 32.
    """
    groups = np.zeros((-(-words.size // 8), 8), np.uint64)  # 8 words fill whole bytes
    groups.reshape(-1)[: words.size] = words & np.uint32(2**bits - 1)
    found = np.zeros((len(groups), bits), np.uint8)
    for i, word, byte, shift in _places(bits):
        shifted = groups[:, word] << shift >> np.uint64(8 * i)
        found[:, byte] |= (shifted & np.uint64(255)).astype(np.uint8)
    return found.reshape(-1)[: packed_bytes(words.size, bits)]


def unpacked(data: np.ndarray, size: int, bits: int) -> np.ndarray:
    """Return the words, uint32 (size,), that `packed` holds."""
    groups = np.zeros((-(-size // 8), bits), np.uint8)
    groups.reshape(-1)[: data.size] = data
    found = np.zeros((len(groups), 8), np.uint64)
    for i, word, byte, shift in _places(bits):
        found[:, word] |= groups[:, byte].astype(np.uint64) << np.uint64(8 * i) >> shift
    return (found.reshape(-1)[:size] & np.uint64(2**bits - 1)).astype(np.uint32)


def _places(bits: int) -> Iterator[tuple[int, int, int, np.uint64]]:
    """Yield where each byte of 8 packed words is: number within the word, word, byte and shift."""
    for word in range(8):
        first, shift = divmod(word * bits, 8)
        for i in range((shift + bits + 7) // 8):
            yield i, word, first + i, np.uint64(shift)
