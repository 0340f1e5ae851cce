"""The discrete Gaussian distribution: noise on whole numbers, without rounding that could tell.

Source: Canonne, Kamath and Steinke 2020, "The discrete Gaussian for differential privacy",
algorithms 2 and 3. Floating-point noise has gaps that tell what it was added to (Mironov 2012).
Sums of whole numbers and of this noise have none: every result is possible for every sum.
"""

from __future__ import annotations

import math

import numpy as np

from layers.arithmetic import exp
from layers.logic.errors import LogicError
from layers.logic.secrets import SecretDraws

AT_ONCE = 1 << 16  # candidates
MOST = 64  # of the geometric draws; one is larger with probability e^-64


def discrete_gaussian(draws: SecretDraws, scale: float, size: int) -> np.ndarray:
    """Return independent draws with P(k) in proportion to exp(-k^2 / (2 scale^2)), int64 (size,).

    A candidate is k = +-(u + t v), u uniform below t, v geometric, which is a discrete Laplace
    draw; it is kept with a probability that makes it Gaussian. Each event has its probability with
    the relative error of a float64, and 2^-63 at most besides.

    Args:
        draws: the secret draws that it uses.
        scale: s, above 0 and at most 2^40.
        size: number of draws.

    Raises:
        LogicError: the scale is too large, or not above 0.
    """
    if not 0 < scale <= 2.0**40:
        raise LogicError(f"a discrete Gaussian of scale {scale}; it must be above 0, at most 2^40")
    found: list[np.ndarray] = []
    missing = size
    while missing > 0:
        kept = _candidates(draws, scale, min(AT_ONCE, 3 * missing + 64))[:missing]
        found.append(kept)
        missing -= kept.size
    return np.concatenate([np.zeros(0, np.int64), *found])


def _candidates(draws: SecretDraws, scale: float, number: int) -> np.ndarray:
    """Return the candidates that are kept, int64 (about 0.4 number,)."""
    t = math.floor(scale) + 1
    low = _below(draws, t, number)
    low = low[draws.below(exp(-low / t), low.size)]
    high = _geometric(draws, low.size)
    size = low + t * high
    sign = (draws.words(size.size) >> np.uint64(63)).astype(np.int64)
    whole = (size > 0) | (sign == 0)  # 0 has no sign
    size, sign = size[whole], sign[whole]
    square = scale * scale
    away = size - square / t
    kept = draws.below(exp(-away * away / (2 * square)), size.size)
    return np.asarray(np.where(sign == 1, -size, size)[kept])


def _below(draws: SecretDraws, bound: int, number: int) -> np.ndarray:
    """Return uniform whole numbers below a bound, int64: `number` of them or fewer."""
    bits = (bound - 1).bit_length()
    if bits == 0:
        return np.zeros(number, np.int64)
    words = (draws.words(number) >> np.uint64(64 - bits)).astype(np.int64)
    return np.asarray(words[words < bound])


def _geometric(draws: SecretDraws, number: int) -> np.ndarray:
    """Return draws with P(v) = (1 - 1/e) e^-v, int64 (number,)."""
    tails = exp(-np.arange(1.0, MOST + 1)) * 2.0**63
    words = (draws.words(number) >> np.uint64(1)).astype(np.float64)
    return np.asarray(MOST - np.searchsorted(tails[::-1], words, side="right")).astype(np.int64)
