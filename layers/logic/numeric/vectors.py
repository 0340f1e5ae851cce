"""Norms and sketches of flat vectors, with the same bits for any number of threads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from layers.arithmetic import total
from layers.logic.errors import LogicError
from layers.logic.seeds import generator
from layers.logic.storage import Vector

LARGEST = float(np.finfo(np.float32).max)
BLOCK = 1 << 14  # values to square at a time, so that they stay in the processor's cache


def norm(vector: Vector) -> float:
    """Return the Euclidean norm of a float32 (d,) vector, summed in float64.

    `numpy.linalg.norm` leaves the sum to BLAS, which splits it among its threads; and in float32
    the squares of large values overflow.
    """
    return distance(vector, None)


def distance(vector: Vector, other: np.ndarray | None) -> float:
    """Return the norm of ``vector - other``, both float32 (d,), summed in float64; None is zero."""
    squares = 0.0
    for start in range(0, vector.size, BLOCK):
        part = vector[start : start + BLOCK].astype(np.float64)
        if other is not None:
            part -= other[start : start + BLOCK]
        np.multiply(part, part, out=part)
        squares += total(part)
    return math.sqrt(squares)


def inner(vector: Vector, other: np.ndarray) -> float:
    """Return the inner product of two float32 (d,) vectors, summed in float64."""
    products = 0.0
    for start in range(0, vector.size, BLOCK):
        part = vector[start : start + BLOCK].astype(np.float64)
        products += total(np.multiply(part, other[start : start + BLOCK], out=part))
    return products


def largest(vector: np.ndarray) -> float:
    """Return the largest absolute value, or inf or NaN if there is one, without a copy."""
    if not vector.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        return max(abs(float(vector.min())), abs(float(vector.max())))


class Excess(NamedTuple):
    """A norm that is above its bound.

    Attributes:
        norm: the norm.
        bound: the bound.
    """

    norm: float
    bound: float


def excess(
    vector: np.ndarray,
    like: np.ndarray,
    most: float | None,
    *,
    since: np.ndarray | None = None,
    peak: float | None = None,
    like_peak: float | None = None,
) -> Excess | None:
    """Return the norm of a vector if it is more than `most` times (the norm of `like` plus 1).

    The largest absolute values often show without any norm that it is not: the norm of d values is
    between the largest value and sqrt(d) times the largest value.

    Args:
        vector: float32 (d,), finite.
        like: float32 (any,), finite, the vector whose norm sets the bound.
        most: the factor, above 0; None: no bound. The norm must also be a float32 number.
        since: float32 (d,), finite, subtracted from the vector first; None: zero.
        peak: `largest` of the vector; None: not known yet.
        like_peak: `largest` of `like`; None: not known yet.
    """
    if most is None:
        return None
    peak = largest(vector) if peak is None else peak
    like_peak = largest(like) if like_peak is None else like_peak
    if since is not None:
        peak += like_peak if since is like else largest(since)
    reach = peak * math.sqrt(vector.size)
    if reach <= min(most * (like_peak + 1), LARGEST):
        return None
    bound = min(most * (norm(like) + 1), LARGEST)
    found = distance(vector, since)
    return Excess(found, bound) if found > bound else None


def sketch(vector: np.ndarray, values: int, seed: int) -> np.ndarray:
    """Return a sketch, float32 (values,), that keeps distances between vectors.

    Each value of the vector is added, with a random sign, at a random place (Charikar, Chen and
    Farach-Colton 2002). Places and signs are the same for all vectors of a length, so the distance
    between two sketches has a relative error of about sqrt(2 / values).

    Args:
        vector: float32 (d,).
        values: length of the sketch, at most d.
        seed: of places and signs; only sketches of one seed can be compared.

    Raises:
        LogicError: the sketch is longer than the vector.
    """
    if values > vector.size:
        raise LogicError(
            f"a sketch of {values} values of a vector of {vector.size}; ask for fewer values"
        )
    rng = generator(seed, "sketch", vector.size, values)
    places = rng.integers(values, size=vector.size)
    signs = rng.integers(2, size=vector.size) * 2 - 1
    return np.bincount(places, signs * vector, minlength=values).astype(np.float32)


def accumulation(steps: int, learning_rate: float, momentum: float = 0.0, mu: float = 0.0) -> float:
    """Return ||a||_1, where local training computes w_t - w = eta sum_s a_s g_s from gradients g_s.

    These weights are those of Wang et al. 2020, section 4.1:

    ========================  ===================================================
    plain SGD                 tau
    momentum rho              [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho)
    a proximal term mu        [1 - (1 - eta mu)^tau] / (eta mu)
    ========================  ===================================================

    Args:
        steps: tau, 0 or more.
        learning_rate: eta, the same in all steps.
        momentum: rho, with a buffer that starts at zero.
        mu: of FedProx, with eta mu < 1; it cannot be combined with momentum.
    """
    if momentum:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    if mu:
        shrunk = -math.expm1(steps * math.log1p(-learning_rate * mu))  # exact for tiny mu
        return shrunk / (learning_rate * mu)
    return float(steps)
