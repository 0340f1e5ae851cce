"""What sparse ternary compression saves, worked out instead of measured."""

from __future__ import annotations

from layers.logic.compression.golomb import bits_per_position


def compression_ratio(p: float, sattler: bool = False) -> float:
    """Return the bits of float32 values over the expected bits of their ternary form.

    A share of p of the values is told, each by the Golomb code of its position and a sign bit.
    Scales and headers are left out, as is float32's share in them.

    Args:
        p: share of the values that are kept; 0.1 gives 55.6.
        sattler: count a bit more a non-zero, as the published code of Sattler et al. does: 0.1
            gives 47.4, the figure that papers quote.
    """
    return 32 / (p * (bits_per_position(p) + 1 + sattler))
