"""The entropy of a model's parameters, and the share in a mixture that it gives the model.

FedAIM, equation 16. The constant 1/2 in place of the printed 0, and A / pi in place of A, are from
filter grafting (Meng et al. 2020), the source of the function: as printed it is not a share.
"""

from __future__ import annotations

import math

import numpy as np

from layers.arithmetic import log
from layers.logic.numeric.vectors import BLOCK


def entropy(vector: np.ndarray, bins: int = 10) -> float:
    """Return H = -sum_y p_y lg p_y over `bins` equal intervals, least to greatest value.

    The last interval is closed; lg is the decimal logarithm. The entropy of equal values is 0.
    """
    least, most = (float(vector.min()), float(vector.max())) if vector.size else (0.0, 0.0)
    if not least < most:
        return 0.0
    found = np.zeros(bins, np.int64)
    for start in range(0, vector.size, BLOCK):
        part = vector[start : start + BLOCK].astype(np.float64)
        found += np.histogram(part, bins, (least, most))[0]
    p = found[found > 0] / vector.size
    return float(-(p * log(p)).sum() / math.log(10))


def share(first: float, second: float, amplitude: float = 0.5, steepness: float = 1.0) -> float:
    """Return alpha = A / pi arctan(c (H_1 - H_2)) + 1/2, the share of the model with entropy H_1.

    Args:
        first: H_1.
        second: H_2.
        amplitude: A, from 0 to 1; alpha is between 0.5 - A / 2 and 0.5 + A / 2.
        steepness: c.
    """
    return amplitude / math.pi * math.atan(steepness * (first - second)) + 0.5
