"""Fair averaging of conflicting gradients (FedFV: Wang et al. 2021, algorithms 1 to 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layers.logic.aggregators.mean import BufferMean, stepped
from layers.logic.compression.ternary_storage import pack, unpack
from layers.logic.core.aggregator import AGGREGATE, Aggregator, Contribution
from layers.logic.core.messages import Update
from layers.logic.core.state import Memory, ServerState, frozen
from layers.logic.errors import LogicError, Rejected
from layers.logic.numeric.vectors import (
    combine,
    inner_product,
    inner_products,
    project,
    projection_order,
)

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
    received model; nothing else crosses the wire.

    Attributes:
        alpha: share of the updates with the highest losses that are not projected.
        tau: how many rounds external conflicts reach back; 0: none.
    """

    alpha: float = 0.1
    tau: int = 1

    received_loss = True
    each_client = True

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise LogicError(f"alpha must be between 0 and 1, not {self.alpha}")
        if self.tau < 0:
            raise LogicError(f"tau must be 0 or more, not {self.tau}")

    def inspect(self, update: Update) -> None:
        """Reject an update without the loss by which updates are ordered."""
        if "loss" not in update.metrics:
            raise Rejected(
                "an update without the received model's loss, by which FedFV orders them"
            )

    def init(self, state: ServerState) -> _Updates:
        """Start with nothing."""
        return _Updates(BufferMean(state))

    def add(self, total: _Updates, contribution: Contribution) -> _Updates:
        """Keep one update."""
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
        """Return the mean of the projected updates, float64 (d,), and lengths of those received.

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
