"""The saving of sparse ternary compression, computed instead of measured."""

from __future__ import annotations

import math

from layers.logic.compression.golomb import remainder_bits


def bits_per_position(density: float) -> float:
    """Return the expected bits of a position, without its sign: b* + 1 / (1 - (1 - p)^(2^b*))."""
    bits = remainder_bits(density)
    return bits + 1 / -math.expm1(2**bits * math.log1p(-density)) if density < 1 else 1.0


def compression_ratio(p: float, sattler: bool = False) -> float:
    """Return the bits of float32 values over the expected bits of their ternary form.

    The share p of the values travels, each as the Golomb code of its position and a sign bit.
    Scales and headers are left out.

    Args:
        p: share of the values that are kept; 0.1 gives 55.6.
        sattler: count one bit more for each non-zero, as the published code of Sattler et al. does:
            0.1 gives 47.4, the figure that papers quote.
    """
    return 32 / (p * (bits_per_position(p) + 1 + sattler))
