"""Arithmetic with the same bits on every version of Python and numpy and every CPU, for all layers.

numpy chooses implementations of exp, log and powers by the CPU, and versions differ in the last
bit. They also differ in long sums: numpy up to 2.3 adds parts of 8192 values, later versions halve
the whole array. Python's own sum corrects its rounding from 3.12 on. exp, log and cos_sin use only
operations whose rounding IEEE 754 defines. The error of exp and log is below 1 ulp, by the method
and constants of fdlibm (Sun Microsystems 1993, e_exp.c, e_log.c, k_cos.c and k_sin.c).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
EXP = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
LOG = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
COS = (
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)
SIN = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)
DEGREE = np.pi / 180
FAR = 800.0  # exp is 0 or infinite beyond
PART = 1 << 13  # every version of numpy adds this many values in the same order


def exp(values: np.ndarray) -> np.ndarray:
    """Return e to the power of each of the values, float64."""
    x = np.clip(np.asarray(values, np.float64), -FAR, FAR)
    power = np.rint(x / (LN2_HIGH + LN2_LOW))
    high, low = x - power * LN2_HIGH, power * LN2_LOW
    rest = high - low
    square = rest * rest
    series = np.full_like(x, EXP[-1])
    for factor in reversed(EXP[:-1]):
        series *= square
        series += factor
    series = rest - square * series
    result = 1 - ((low - rest * series / (2 - series)) - high)
    with np.errstate(invalid="ignore", over="ignore"):  # a NaN stays one
        return np.asarray(np.ldexp(result, power.astype(np.int32)))


def log(values: np.ndarray) -> np.ndarray:
    """Return the natural logarithm of each of the values, which are finite and above 0, float64."""
    fraction, power = np.frexp(np.asarray(values, np.float64))
    small = fraction < np.sqrt(0.5)
    f = np.where(small, 2 * fraction, fraction) - 1
    power = (power - small).astype(np.float64)
    s = f / (2 + f)
    square = s * s
    series = np.full_like(s, LOG[-1])
    for factor in reversed(LOG[:-1]):
        series *= square
        series += factor
    series *= square
    half = 0.5 * f * f
    return np.asarray(power * LN2_HIGH - ((half - (s * (half + series) + power * LN2_LOW)) - f))


def cos_sin(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosine and the sine of each of the angles, float64."""
    angle = np.asarray(degrees, np.float64)
    quarter = np.rint(angle / 90)
    x = (angle - 90 * quarter) * DEGREE
    square = x * x
    cos, sin = np.full_like(x, COS[-1]), np.full_like(x, SIN[-1])
    for to_cos, to_sin in zip(reversed(COS[:-1]), reversed(SIN[:-1]), strict=True):
        cos = cos * square + to_cos
        sin = sin * square + to_sin
    cos, sin = 1 - (0.5 * square - square * square * cos), x + x * square * sin
    number = quarter.astype(np.int64) % 4
    return (
        np.choose(number, [cos, -sin, -cos, sin]),
        np.choose(number, [sin, cos, -sin, -cos]),
    )


def power(values: np.ndarray, exponent: float) -> np.ndarray:
    """Return each of the (n,) values to the power of `exponent`, by the C library, float64."""
    if exponent == 2:
        return np.asarray(np.square(values))
    return np.array([value**exponent for value in values.tolist()])


def total(values: np.ndarray) -> float:
    """Return the sum of (n,) values in float64, part by part."""
    whole = 0.0
    for start in range(0, values.size, PART):
        whole += float(np.add.reduce(values[start : start + PART], dtype=np.float64))
    return whole


def sum_in_order(values: Iterable[float]) -> float:
    """Return the sum of numbers, added in order and rounded after each.

    Python's own sum does this up to 3.11; later versions compensate the rounding.
    """
    whole = 0.0
    for value in values:
        whole += value
    return whole
