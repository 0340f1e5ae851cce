"""Coded positions with a head that gives their number and the parameter of their code."""

from __future__ import annotations

import struct

import numpy as np

from layers.logic.compression.golomb import pack, remainder_bits
from layers.logic.errors import Rejected

HEAD = struct.Struct("<QB")  # number of positions, bits of each remainder


def encode_positions(
    positions: np.ndarray, size: int, between: np.ndarray, positive: np.ndarray | None = None
) -> np.ndarray:
    """Return the head, the bytes `between`, and the Golomb stream; uint8 (bytes,).

    The code's parameter is the best one for the actual share of positions.

    Args:
        positions: int64 (n,), ascending.
        size: of the vector, d.
        between: uint8 (bytes,), put between the head and the stream.
        positive: bool (n,), the signs; None leaves them out.
    """
    bits = remainder_bits(positions.size / size) if size else 0
    head = np.frombuffer(HEAD.pack(positions.size, bits), np.uint8)
    return np.concatenate((head, between, pack(positions, bits, positive)))


def decode_head(payload: np.ndarray, size: int) -> tuple[int, int, np.ndarray]:
    """Return the number of positions, the code's parameter, and the bytes behind the head.

    Raises:
        Rejected: the payload is too short, or its number or parameter is impossible.
    """
    if payload.size < HEAD.size:
        raise Rejected(f"a payload of {payload.size} bytes; the head alone has {HEAD.size}")
    count, bits = HEAD.unpack(payload[: HEAD.size].tobytes())
    if count > size:
        raise Rejected(f"{count} positions in a vector of {size}")
    # One more than the best parameter is allowed, because another machine's logarithm may round
    # differently. With much more a stream could be many times as long as the vector.
    best = remainder_bits(count / size) if count else 0
    if bits > best + 1:
        raise Rejected(f"positions with {bits} bits of remainder; {best} are best")
    return count, bits, payload[HEAD.size :]
