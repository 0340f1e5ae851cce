"""The mean of the strata's means, each with its share of the data (FedSSO, equations 3, 12, 15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from layers.logic.aggregators.buffers import BufferMean
from layers.logic.aggregators.sums import add_scaled, stepped
from layers.logic.algorithms.fedsso.clustering import Clustering, Stratum
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError


@dataclass
class _Sum:
    delta: np.ndarray  # of all clients (literal), or of the stratum that is open
    buffers: BufferMean
    strata: Mapping[str, Stratum]
    means: np.ndarray  # sum of the closed strata's means, each times its share; empty if literal
    shares: float = 0.0
    samples: int = 0
    clients: int = 0
    group: str | None = None
    closed: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Stratified(Aggregator):
    """sum_c (n_c / n) sum_{k in S_c} n_k w_k / sum_{k in S_c} n_k, of the strata that returned.

    n_c are the samples of all clients of stratum c, n those of the strata that returned. The
    selector keeps the strata (see `Clustering`) and names them in its plan, in which the lanes of
    a stratum stand together. A stratum that it does not keep has the samples that returned. Memory
    is that of one update and two sums. Buffers are averaged by n_k.

    Attributes:
        mean: ``"stratified"`` is the above. ``"literal"`` is (N / K) sum_k (n_k / n) w_k as printed
            in equation 3, with N clients that have n samples in all strata, and K clients that
            returned. Unless all n_k are equal, its weights do not sum to 1, and the model shrinks
            or grows.
    """

    mean: Literal["stratified", "literal"] = "stratified"

    by_slices = True
    by_samples = True

    def __post_init__(self) -> None:
        if self.mean not in ("stratified", "literal"):
            raise LogicError(f"stratified: mean must be stratified or literal, not {self.mean!r}")

    def init(self, state: ServerState) -> _Sum:
        """Start with nothing."""
        size = state.weights.size
        means = np.zeros(size if self.mean == "stratified" else 0)
        strata = Clustering.of_state(state).strata
        return _Sum(np.zeros(size), BufferMean(state), strata, means)

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        """Add one contribution to its stratum, or to all."""
        if self.mean == "stratified" and contribution.group != total.group:
            _close(total)
            if contribution.group in total.closed:
                raise LogicError(
                    f"stratified: the lanes of the stratum {contribution.group!r} do not stand "
                    "together in the plan; order the plan's lanes by stratum"
                )
            total.group = contribution.group
        add_scaled(total.delta, contribution.delta, float(contribution.samples))
        total.samples += contribution.samples
        total.clients += 1
        total.buffers.add(contribution)
        return total

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        """Return the state with the mean applied."""
        if self.mean == "stratified":
            _close(total)
            delta = total.means
            delta /= total.shares
        else:
            delta = _literal(total, state.weights)
        return stepped(state, delta, total.buffers.mean())


def _close(total: _Sum) -> None:
    """Add the mean of the open stratum to those of the closed ones, and close it."""
    if total.group is None:
        return
    known = total.strata.get(total.group)
    share = float(max(known.samples if known else 0, total.samples))
    add_scaled(total.means, total.delta, share / total.samples)
    total.shares += share
    total.closed.add(total.group)
    total.delta[:] = 0
    total.samples, total.group = 0, None


def _literal(total: _Sum, weights: np.ndarray) -> np.ndarray:
    """Return float64 (d,): a sum_k n_k w_k - w, where a = N / (K n)."""
    kept = total.strata.values()
    clients = sum(stratum.clients for stratum in kept) or total.clients
    samples = sum(stratum.samples for stratum in kept) or total.samples
    scale = clients / (total.clients * samples)
    total.delta *= scale
    add_scaled(total.delta, weights, scale * total.samples - 1)
    return total.delta
