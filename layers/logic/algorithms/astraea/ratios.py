"""The factor for the number of samples of each class (Astraea: Duan et al. 2019, algorithm 2).

A class whose number of samples lies far below or above the mean, by its z-score, is brought up or
down: its new z-score is the geometric mean of its z-score and the one that is allowed.
"""

from __future__ import annotations

import numpy as np

MOST = 100.0  # without a limit one absurd histogram would let all clients train without end


def ratios(numbers: np.ndarray, above: float = 3.0, below: float | None = None) -> np.ndarray:
    """Return float64 (C,): the factor for the samples of each class; 1 leaves a class alone.

    With mean m and standard deviation s (of C - 1 degrees of freedom) of the `numbers` (C,), and
    z = (number - m) / s: (m - s sqrt(z T_a)) / number where z < T_a, (m + s sqrt(z T_d)) / number
    where z > T_d; at most 100. A class without samples is left alone.

    Args:
        numbers: samples of each class over all clients.
        above: T_d, above 0.
        below: T_a, below 0; None: -1 / T_d.
    """
    numbers = np.asarray(numbers, np.float64)
    factors = np.ones(numbers.size)
    spread = numbers.std(ddof=1) if numbers.size > 1 else 0.0
    if spread == 0:
        return factors
    below = -1 / above if below is None else below
    mean, z = numbers.mean(), (numbers - numbers.mean()) / spread
    few, many = (z < below) & (numbers > 0), z > above
    factors[few] = (mean - spread * np.sqrt(z[few] * below)) / numbers[few]
    factors[many] = (mean + spread * np.sqrt(z[many] * above)) / numbers[many]
    return np.minimum(factors, MOST)
