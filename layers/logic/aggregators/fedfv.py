"""Fair averaging of conflicting gradients (FedFV: Wang et al. 2021, algorithms 1 to 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layers.logic.aggregators.mean import BufferMean, stepped
from layers.logic.core.aggregator import AGGREGATE, Aggregator, Contribution
from layers.logic.core.declaration import Need
from layers.logic.core.messages import Update
from layers.logic.core.state import Memory, ServerState, frozen
from layers.logic.errors import Rejected
from layers.settings import Share, WholeNumber

NARROW = 1 << 12  # values of each of up to 20 vectors at a time
WIDE = 1 << 14  # values of two vectors and a sum at a time
SAMPLE = 1 << 14  # values that show for most vectors that they are not ternary
NOISE = 1e-12  # a shorter direction, relative to the longest update, is zero except for rounding


@dataclass
class _Updates:
    buffers: BufferMean
    deltas: list[np.ndarray] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    clients: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class FedFV(Aggregator):
    """The mean of the updates, after conflicting ones were projected onto one another.

    *Internal* conflicts (algorithm 2): two updates conflict if their inner product is negative.
    Each update, except the share `alpha` with the highest losses, is projected onto the normal
    plane of every other one with which it conflicts, in ascending order of loss. g is the plain
    mean of the results.
    *External* conflicts (algorithm 3), from round `tau` on: for each of the last `tau` rounds,
    oldest first, take the updates of the clients that took part in that round and in none since.
    Those that conflict with g are summed, and g is projected onto the normal plane of the sum. At
    the end g is scaled to the length of the mean of the updates as received; zero stays zero.

    All updates of a round are held in memory. The server keeps each client's last update for `tau`
    rounds, a ternary one as bits; they are part of the checkpoint. Clients report the loss of the
    received model; nothing else is sent.

    Attributes:
        alpha: share of the updates with the highest losses that are not projected.
        tau: how many rounds external conflicts reach back; 0: none.
    """

    name = "fedfv"

    alpha: Share = 0.1
    tau: WholeNumber = 1

    requires = frozenset({Need.RECEIVED_LOSS, Need.EACH_CLIENT, Need.ONE_VERSION})

    def inspect(self, update: Update) -> None:
        if "loss" not in update.metrics:
            raise Rejected(
                "an update without the received model's loss, by which FedFV orders them"
            )

    def init(self, state: ServerState) -> _Updates:
        return _Updates(BufferMean(state))

    def add(self, total: _Updates, contribution: Contribution) -> _Updates:
        (update,) = contribution.updates
        total.buffers.add(contribution)
        total.deltas.append(np.asarray(contribution.delta))
        total.losses.append(float(update.metrics["loss"]))
        total.clients.append(update.client)
        return total

    def finish(self, total: _Updates, state: ServerState) -> ServerState:
        """Return the state with the projected mean applied, and the history with it."""
        round = state.round + 1
        history: dict[int, Memory] = {
            client: past
            for client, past in state.memory.get(AGGREGATE, {}).get("history", {}).items()
            if client not in total.clients  # their last update is this round's
        }
        delta, lengths, received = self._internal(total)
        delta = self._external(delta, history, round)
        length = np.sqrt(inner_product(delta, delta))
        if length > NOISE * lengths.max():
            delta *= received / length
        else:
            delta[:] = 0
        for client, update in zip(total.clients, total.deltas, strict=True):
            history[client] = {"round": round, **pack(frozen(update))}
        kept = {
            client: history[client]
            for client in sorted(history)
            if history[client]["round"] > round - self.tau
        }
        state = stepped(state, delta, total.buffers.mean())
        return replace(state, memory={**state.memory, AGGREGATE: {"history": kept}})

    def _internal(self, total: _Updates) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the mean of the projected updates, float64 (d,), and the received lengths.

        The lengths are those of the updates, float64 (m,), and that of their mean.
        """
        products = inner_products(total.deltas)
        order, kept = projection_order(total.losses, self.alpha)
        coefficients = project(products, order, kept)
        number = len(total.deltas)
        means = np.stack([coefficients.sum(axis=0), np.ones(number)]) / number
        mitigated, plain = combine(total.deltas, means)
        return mitigated, np.sqrt(np.diag(products)), np.sqrt(inner_product(plain, plain))

    def _external(
        self, delta: np.ndarray, history: Mapping[int, Mapping[str, Any]], round: int
    ) -> np.ndarray:
        """Return `delta` without its conflicts with the updates of earlier rounds."""
        for past in range(round - self.tau, round) if round >= self.tau else ():
            against = np.zeros_like(delta)
            for client in sorted(history):
                if history[client]["round"] == past:
                    update = unpack(history[client])
                    if inner_product(delta, update) < 0:
                        against += update
            product = inner_product(delta, against)
            if product < 0:
                delta -= (product / inner_product(against, against)) * against
        return delta


# --- projection ------------------------------------------------------------------------------
#
# A projected update is a sum of the received updates, p = sum_j c_j g_j. All inner products are
# computed once, the projections change only the coefficients c, and one last pass makes the vector.
# Products are summed in float64, block by block, with the same bits for any number of threads.


def inner_products(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return float64 (m, m), all inner products of m float32 (d,) vectors."""
    products = np.zeros((len(vectors), len(vectors)))
    for block in _blocks(vectors):
        products += block @ block.T
    return products


def projection_order(losses: Sequence[float], alpha: float) -> tuple[list[int], set[int]]:
    """Return the places of the vectors by ascending loss, and the places of the kept vectors.

    Equal losses stay in their order. The share `alpha` with the highest losses is kept unchanged:
    at least one vector, if alpha is not 0.
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
            for row, c in zip(sums, column, strict=True):
                row[part] += np.multiply(piece, c, out=scaled[: piece.size], dtype=np.float64)
    return sums


def inner_product(one: np.ndarray, other: np.ndarray) -> float:
    """Return the inner product of two (d,) vectors, summed in float64."""
    result = 0.0
    for start in range(0, one.size, NARROW):
        part = slice(start, start + NARROW)
        result += float(np.add.reduce(np.multiply(one[part], other[part], dtype=np.float64)))
    return result


def _blocks(vectors: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield float64 (m, at most NARROW) pieces of the vectors; each overwrites the one before."""
    size = vectors[0].size
    block = np.empty((len(vectors), min(size, NARROW)))
    for start in range(0, size, NARROW):
        part = block[:, : min(NARROW, size - start)]
        for row, vector in zip(part, vectors, strict=True):
            row[:] = vector[start : start + NARROW]
        yield part


# --- the history, as bits --------------------------------------------------------------------


def pack(vector: np.ndarray) -> Memory:
    """Return a float32 (d,) vector as named arrays, without loss: as bits if that is smaller.

    A ternary vector has one magnitude in each tensor. It takes one bit for each value (zero or
    not), one bit for each non-zero (its sign), and each magnitude once: a 32nd to a 16th of the
    vector.
    """
    if _is_dense(vector[:SAMPLE]):
        return {"dense": vector}
    places = vector != 0
    values = vector[places]
    magnitudes = np.abs(values)
    changes = np.flatnonzero(magnitudes[1:] != magnitudes[:-1]) + 1
    starts = np.concatenate([np.zeros(min(1, values.size), np.int64), changes])
    packed = {
        "size": vector.size,
        "places": np.packbits(places),
        "negative": np.packbits(values < 0),
        "starts": starts,  # of the runs of one magnitude, among the non-zeros
        "magnitudes": magnitudes[starts],
    }
    if sum(part.nbytes for part in packed.values() if isinstance(part, np.ndarray)) < vector.nbytes:
        return packed
    return {"dense": vector}


def unpack(packed: Mapping[str, Any]) -> np.ndarray:
    """Return the float32 (d,) vector that `pack` was given; a negative zero comes back as zero."""
    if "dense" in packed:
        dense: np.ndarray = packed["dense"]
        return dense
    places = np.unpackbits(packed["places"], count=packed["size"]).view(bool)
    number = int(np.count_nonzero(places))
    lengths = np.diff(packed["starts"], append=number)
    values = np.repeat(packed["magnitudes"], lengths)
    negative = np.unpackbits(packed["negative"], count=number).view(bool)
    np.negative(values, out=values, where=negative)
    vector = np.zeros(packed["size"], np.float32)
    vector[places] = values
    return vector


def _is_dense(sample: np.ndarray) -> bool:
    """Return whether the magnitudes change so often that storing runs of them saves nothing."""
    magnitudes = np.abs(sample[sample != 0])
    changes = int(np.count_nonzero(magnitudes[1:] != magnitudes[:-1]))
    return changes > len(magnitudes) // 4
