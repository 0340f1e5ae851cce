"""Golomb coding of the positions of non-zeros (Golomb 1966; Sattler et al. 2019, algorithm 3).

A position is coded as its gap d >= 1 from the previous position (the first from -1). With
q = (d - 1) div 2^b and r = (d - 1) mod 2^b the code is q ones, a zero, r in b bits (most
significant first) and, if signs are coded, one bit for the sign (1 is positive). Zeros pad the
stream to whole bytes.

Each code starts where the previous code ends. Decoding still needs no loop over the codes: one zero
ends the ones of each code. Every zero of the stream could be such an end, and then the next end is
the first zero after the bits that follow it. So each zero has one successor, and pointer doubling
follows the successors (1, 2, 4, ... steps at once), block by block.
"""

from __future__ import annotations

import math
import struct

import numpy as np

from layers.logic.errors import Rejected

BLOCK_BITS = 1 << 15  # to decode at a time, so that a block stays in the processor's cache
BLOCK_CODES = 1 << 14  # to encode at a time
GOLDEN = (math.sqrt(5) + 1) / 2


def remainder_bits(density: float) -> int:
    """Return b* = max(0, 1 + floor(log2(ln(phi - 1) / ln(1 - p)))), phi = (sqrt 5 + 1) / 2.

    Args:
        density: p, the share of positions to code, from 0 to 1.
    """
    if not 0 < density < 1:
        return 0
    return max(0, 1 + math.floor(math.log2(math.log(GOLDEN - 1) / math.log1p(-density))))


def pack(positions: np.ndarray, bits: int, positive: np.ndarray | None = None) -> np.ndarray:
    """Return the stream of ascending `positions`, uint8 (bytes,).

    Args:
        positions: int64 (n,).
        bits: b, the bits of each remainder.
        positive: bool (n,), the signs; None leaves them out.
    """
    if not positions.size:
        return np.zeros(0, np.uint8)
    tail = bits + (positive is not None)  # bits after the zero that ends the ones
    most = positions.size * (tail + 1) + (int(positions[-1]) >> bits)
    stream = np.ones(most, np.uint8)
    used, last = 0, -1
    for low in range(0, positions.size, BLOCK_CODES):
        block = slice(low, low + BLOCK_CODES)
        gaps = np.diff(positions[block], prepend=last) - 1
        ends = np.cumsum((gaps >> bits) + (tail + 1)) + (used - tail - 1)
        stream[ends] = 0
        for place in range(bits):
            stream[ends + (1 + place)] = (gaps >> (bits - 1 - place)) & 1
        if positive is not None:
            stream[ends + tail] = positive[block]
        used, last = int(ends[-1]) + tail + 1, int(positions[block][-1])
    return np.packbits(stream[:used])


def unpack(
    stream: np.ndarray, count: int, bits: int, size: int, signed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` ascending positions below `size`, int64 (count,), and their signs.

    Args:
        stream: uint8 (bytes,), untrusted.
        count: number of positions, at most `size`.
        bits: b, the bits of each remainder.
        size: d, the length of the vector.
        signed: whether the stream has signs; if not, the returned signs are empty.

    Raises:
        Rejected: this is not the stream of `count` positions below `size`.
    """
    tail = bits + signed
    most_bits = count * (tail + 1) + (size >> bits)
    if not 8 * stream.size < most_bits + 8:
        raise Rejected(f"{stream.size} bytes of positions; {count} below {size} take fewer")
    flags = np.unpackbits(stream)
    positions = np.empty(count, np.int64)
    positive = np.empty(count if signed else 0, bool)
    found, begin, last = 0, 0, -1  # codes so far, where the next one begins, the last position
    for low in range(0, flags.size, BLOCK_BITS):
        high = min(low + BLOCK_BITS, flags.size)
        if found == count:
            break
        if begin >= high:
            continue
        first = max(begin, low)
        ends = _ends(flags[first:high], tail)[: count - found] + first
        if not ends.size:
            continue  # the ones of a code continue in the next block
        if ends[-1] + tail >= flags.size:
            break  # the stream ends within a code
        block = slice(found, found + ends.size)
        gaps = np.diff(ends, prepend=begin - tail - 1) - (tail + 1)
        for place in range(1, bits + 1):
            gaps <<= 1
            gaps |= flags[ends + place]
        np.cumsum(gaps + 1, out=positions[block])
        positions[block] += last
        if signed:
            positive[block] = flags[ends + tail]
        found, begin, last = block.stop, int(ends[-1]) + tail + 1, int(positions[block.stop - 1])
        if last >= size:
            raise Rejected(f"a position of {last} in a vector of {size}")
    if found < count:
        raise Rejected(f"{stream.size} bytes of positions end before the last of {count}")
    if flags.size - begin >= 8 or flags[begin:].any():
        raise Rejected(f"{stream.size} bytes of positions go on after the last of {count}")
    return positions, positive


def _ends(flags: np.ndarray, tail: int) -> np.ndarray:
    """Return the positions of the zeros that end the ones of each code, ascending int64.

    The first code begins at bit 0.


    Args:
        flags: uint8 (bits,), a block of the stream.
        tail: bits after the zero that ends the ones.
    """
    is_zero = flags == 0
    zeros = np.flatnonzero(is_zero)
    if not zeros.size:
        return zeros
    upto = np.cumsum(is_zero, dtype=np.int64)  # zeros up to each bit = number of the next zero
    jump = np.empty(zeros.size + 1, np.int64)
    jump[:-1] = upto[np.minimum(zeros + tail, flags.size - 1)]
    jump[-1] = zeros.size  # beyond this block
    path = np.zeros(1, np.int64)
    while path[-1] < zeros.size:
        path = np.concatenate((path, jump[path]))
        jump = jump[jump]
    ends: np.ndarray = zeros[path[: np.searchsorted(path, zeros.size)]]
    return ends


HEAD = struct.Struct("<QB")  # number of positions, bits of each remainder


def encode_positions(
    positions: np.ndarray, size: int, between: np.ndarray, positive: np.ndarray | None = None
) -> np.ndarray:
    """Return the head, the bytes `between`, and the Golomb stream; uint8 (bytes,).

    The code's parameter is the best one for this share of positions.

    Args:
        positions: int64 (n,), ascending.
        size: d, the length of the vector.
        between: uint8 (bytes,), put between the head and the stream.
        positive: bool (n,), the signs; None leaves them out.
    """
    bits = remainder_bits(positions.size / size) if size else 0
    head = np.frombuffer(HEAD.pack(positions.size, bits), np.uint8)
    return np.concatenate((head, between, pack(positions, bits, positive)))


def decode_head(payload: np.ndarray, size: int) -> tuple[int, int, np.ndarray]:
    """Return the number of positions, the code's parameter, and the remaining bytes.

    Raises:
        Rejected: the payload is too short, or its number or parameter is impossible.
    """
    if payload.size < HEAD.size:
        raise Rejected(f"a payload of {payload.size} bytes; the head alone has {HEAD.size}")
    count, bits = HEAD.unpack(payload[: HEAD.size].tobytes())
    if count > size:
        raise Rejected(f"{count} positions in a vector of {size}")
    # One more than the best parameter is allowed, because another machine's logarithm may round
    # differently. A much larger parameter would allow streams many times as long as the vector.
    best = remainder_bits(count / size) if count else 0
    if bits > best + 1:
        raise Rejected(f"positions with {bits} bits of remainder; {best} are best")
    return count, bits, payload[HEAD.size :]
