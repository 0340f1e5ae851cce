"""Projection of conflicting gradients (FedFV: Wang et al. 2021, algorithm 2), by inner products.

A projected gradient is a sum of the given gradients: p = sum_j c_j g_j. So all inner products are
computed once, the projections change the coefficients c only, and one last pass makes the vector.
Products are summed in float64, block by block, with the same bits for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

BLOCK = 1 << 12  # values of each vector at a time, so that 20 of them stay in the processor's cache
WIDE = 1 << 14  # the same, for two vectors and a sum


def inner_products(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return float64 (m, m), all inner products of m float32 (d,) vectors."""
    products = np.zeros((len(vectors), len(vectors)))
    for block in _blocks(vectors):
        products += block @ block.T
    return products


def projection_order(losses: Sequence[float], alpha: float) -> tuple[list[int], set[int]]:
    """Return the places of the vectors by ascending loss, and the places of those that are kept.

    Equal losses stay in their order. The share `alpha` with the highest losses is kept as it is: at
    least one vector, if alpha is not 0.
    """
    order = sorted(range(len(losses)), key=lambda i: losses[i])
    projected = max(0, math.ceil((len(order) - 1) * (1 - alpha) - 1e-9))  # rounding adds no client
    return order, set(order[projected:]) if alpha > 0 else set()


def project(products: np.ndarray, order: Sequence[int], kept: set[int]) -> np.ndarray:
    """Return float64 (m, m); row i has the coefficients c of the projected vector i.

    Each vector that is not kept is projected in `order` onto the normal plane of every other
    *original* vector with which its current value conflicts: p -= (p.g_j / ||g_j||^2) g_j where
    p.g_j < 0.
    """
    coefficients = np.eye(len(products))
    for i, c in enumerate(coefficients):
        if i in kept:
            continue
        for j in order:
            if j == i or not products[j, j]:  # a zero vector conflicts with no other
                continue
            product = float(np.add.reduce(c * products[j]))
            if product < 0:
                c[j] -= product / products[j, j]
    return coefficients


def combine(vectors: Sequence[np.ndarray], coefficients: np.ndarray) -> np.ndarray:
    """Return float64 (r, d): r sums of m float32 (d,) vectors with `coefficients` (r, m)."""
    sums = np.zeros((len(coefficients), vectors[0].size))
    scaled = np.empty(WIDE)  # the bits of a matrix product would depend on the number of threads
    for start in range(0, vectors[0].size, WIDE):
        part = slice(start, start + WIDE)
        for vector, column in zip(vectors, coefficients.T, strict=True):
            piece = vector[part]
            for total, c in zip(sums, column, strict=True):
                total[part] += np.multiply(piece, c, out=scaled[: piece.size], dtype=np.float64)
    return sums


def inner_product(one: np.ndarray, other: np.ndarray) -> float:
    """Return the inner product of two (d,) vectors, summed in float64."""
    total = 0.0
    for start in range(0, one.size, BLOCK):
        part = slice(start, start + BLOCK)
        total += float(np.add.reduce(np.multiply(one[part], other[part], dtype=np.float64)))
    return total


def _blocks(vectors: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield float64 (m, at most BLOCK) pieces of the vectors; each overwrites the one before."""
    size = vectors[0].size
    block = np.empty((len(vectors), min(size, BLOCK)))
    for start in range(0, size, BLOCK):
        part = block[:, : min(BLOCK, size - start)]
        for row, vector in zip(part, vectors, strict=True):
            row[:] = vector[start : start + BLOCK]
        yield part
