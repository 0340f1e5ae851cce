"""FedAIM's two servers, NEBS and EBS, and the exchange of their models at the central server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from layers.arithmetic import sum_in_order
from layers.logic.aggregators.buffers import BufferMean
from layers.logic.aggregators.sums import add_scaled, moved
from layers.logic.algorithms.fedaim.entropy import entropy, share
from layers.logic.algorithms.fedaim.split import ALONE, EBS, NEBS, Split
from layers.logic.core.aggregator import AGGREGATE, Aggregator, Contribution
from layers.logic.core.messages import Update
from layers.logic.core.state import ServerState, frozen
from layers.logic.errors import LogicError, Rejected
from layers.logic.numeric.vectors import norm

LEAST_BIAS = 1e-8  # so that a client without bias has a finite weight


class _Server:
    """The mean of the lanes of one of the two servers."""

    def __init__(self, state: ServerState, start: tuple[np.ndarray, np.ndarray]) -> None:
        self._weights, self._buffers = start
        self._delta = np.zeros(state.weights.size)
        self._mean = BufferMean(state)
        self._weight = 0.0

    def add(self, contribution: Contribution, weight: float) -> None:
        add_scaled(self._delta, contribution.delta, weight)
        self._mean.add(contribution)
        self._weight += weight

    def model(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and buffers; those from before the round if no client returned."""
        if not self._weight:
            return self._weights, self._buffers
        self._delta /= self._weight
        return moved(self._weights, self._delta), self._mean.mean()


@dataclass
class _Round:
    nebs: _Server
    ebs: _Server
    buffers: BufferMean
    bias: Mapping[int, float]
    alone: str = ""  # the server that alone has clients in this round; empty: both have
    loss: float = 0.0
    samples: float = 0.0  # of the clients whose loss is in the sum


@dataclass(frozen=True)
class FedAim(Aggregator):
    """NEBS averages single clients, EBS averages mediators; when they differ much, they are mixed.

    FedAIM, algorithm 2, equations 4 to 21. w^NEBS is the mean of the clients that are not extremely
    biased by their samples; w^EBS that of the mediators' models by B_m = sum_k n_k / EMD_k over the
    mediator's clients that counted. loss_t is the mean over the clients of NEBS of the loss of the
    model that they received. The servers are stable if (loss_t - loss_{t-1}) / loss_{t-1} is at
    most `tolerance`, and in the first round. If they are, and ||w^EBS - w^C|| / ||w^C|| is at least
    `divergence`, then w^C = alpha w^NEBS + (1 - alpha) w^EBS with alpha by the entropies of the two
    models (see `entropy`), from which both servers continue. The global model is w^C.
    Buffers are averaged by samples.

    Without extremely biased clients w^C is w^NEBS, which is FedAvg, and so it is with a selector
    that makes no groups. Without other clients w^C is w^EBS. In a round in which only one server
    has clients, w^C is the model of that server. There is no exchange in a round in which NEBS has
    clients and none of them returned. It keeps loss_{t-1}, the number of exchanges and the last
    alpha, and between exchanges w^NEBS and w^EBS, float32 (d,) each.

    Attributes:
        divergence: theta_WD.
        tolerance: theta_loss.
        amplitude: A, from 0 to 1; alpha lies between 0.5 - A / 2 and 0.5 + A / 2.
        steepness: c.
        bins: Y, intervals of the histogram from which the entropy is computed.
        loss_rule: ``"signed_rel"`` is the test above, ``"abs_rel"`` takes the absolute value of the
            quotient, ``"signed_abs"`` does not divide.
        sync_back: whether both servers continue from w^C after an exchange; else each continues
            from its own model.
    """

    divergence: float = 0.015
    tolerance: float = 0.1
    amplitude: float = 0.5
    steepness: float = 1.0
    bins: int = 10
    loss_rule: Literal["signed_rel", "abs_rel", "signed_abs"] = "signed_rel"
    sync_back: bool = True

    received_loss = True
    by_samples = True
    by_slices = True

    def __post_init__(self) -> None:
        for name in ("divergence", "tolerance", "steepness"):
            if not 0 <= getattr(self, name) < math.inf:
                raise LogicError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if not 0 <= self.amplitude <= 1:
            raise LogicError(f"amplitude must be between 0 and 1, not {self.amplitude}")
        if self.bins < 2:
            raise LogicError(f"bins must be 2 or more, not {self.bins}")
        if self.loss_rule not in ("signed_rel", "abs_rel", "signed_abs"):
            raise LogicError(
                f"loss_rule must be signed_rel, abs_rel or signed_abs, not {self.loss_rule!r}"
            )

    def inspect(self, update: Update) -> None:
        """Reject an update without the received model's loss."""
        if "loss" not in update.metrics:
            raise Rejected("an update without the received model's loss, which fedaim needs")

    def start(self, state: ServerState, group: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the model of the group's server."""
        server = _server_of(group)
        kept = state.memory.get(AGGREGATE, {})
        if server not in kept:
            return state.weights, state.buffers
        return kept[server], kept[f"{server}_buffers"]

    def init(self, state: ServerState) -> _Round:
        """Start with nothing."""
        nebs, ebs = (_Server(state, self.start(state, server)) for server in (NEBS, EBS))
        return _Round(nebs, ebs, BufferMean(state), Split.of_state(state).bias)

    def add(self, total: _Round, contribution: Contribution) -> _Round:
        """Add a lane to its server's mean."""
        total.buffers.add(contribution)
        if contribution.group.endswith(ALONE):
            total.alone = _server_of(contribution.group)
        if _server_of(contribution.group) == EBS:
            total.ebs.add(contribution, _weight(contribution, total.bias))
            return total
        total.nebs.add(contribution, float(contribution.samples))
        for update in contribution.updates:
            total.loss += update.samples * float(update.metrics["loss"])
            total.samples += update.samples
        return total

    def finish(self, total: _Round, state: ServerState) -> ServerState:
        """Return the state after both means, and the exchange if it is time for one."""
        kept = dict(state.memory.get(AGGREGATE, {}))
        nebs, ebs = total.nebs.model(), total.ebs.model()
        last, stable = kept.get("last_loss"), False
        if total.samples:
            kept["last_loss"] = loss = total.loss / total.samples
            stable = self._stable(loss, last)
        split = Split.of_state(state)
        if not split.mediators or not split.unbiased:
            return _central(state, kept, nebs if not split.mediators else ebs)
        if total.alone:  # the other server keeps its model until its clients return
            return _central(state, kept, nebs if total.alone == NEBS else ebs, (total.alone,))
        if stable and self._apart(ebs[0], state.weights):
            h_nebs, h_ebs = (entropy(weights, self.bins) for weights, _ in (nebs, ebs))
            alpha = share(h_nebs, h_ebs, self.amplitude, self.steepness)
            kept |= {"alpha": alpha, "exchanges": kept.get("exchanges", 0) + 1}
            mixed = np.multiply(nebs[0], alpha, dtype=np.float64)
            add_scaled(mixed, ebs[0], 1 - alpha)
            model = (mixed.astype(np.float32), total.buffers.mean())
            if self.sync_back:
                return _central(state, kept, model)
            state = replace(state, weights=model[0], buffers=model[1])
        for server, (weights, buffers) in ((NEBS, nebs), (EBS, ebs)):
            kept |= {server: frozen(weights), f"{server}_buffers": frozen(buffers)}
        return replace(state, memory={**state.memory, AGGREGATE: kept})

    def _stable(self, loss: float, last: float | None) -> bool:
        if last is None:
            return True
        if self.loss_rule == "signed_abs":
            return loss - last <= self.tolerance
        if last <= 0:  # a relative change is not defined
            return loss <= last
        change = (loss - last) / last
        return (abs(change) if self.loss_rule == "abs_rel" else change) <= self.tolerance

    def _apart(self, ebs: np.ndarray, central: np.ndarray) -> bool:
        size = norm(central)
        return size == 0 or norm(ebs - central) / size >= self.divergence


def _server_of(group: str) -> str:
    server = group.removesuffix(ALONE)
    if server not in ("", NEBS, EBS):
        raise LogicError(
            f"the aggregator fedaim has the groups {NEBS} and {EBS}, and the selector made a group "
            f"{group!r}; use the selector fedaim"
        )
    return server or NEBS


def _weight(contribution: Contribution, bias: Mapping[int, float]) -> float:
    """Return B_m, the weight of a mediator, over its clients that counted."""
    unknown = [u.client for u in contribution.updates if u.client not in bias]
    if unknown:
        raise LogicError(
            f"fedaim weighs mediators by the biases of their clients, and the selector keeps no "
            f"bias of clients {unknown}; use the selector fedaim"
        )
    shares = (u.samples / max(bias[u.client], LEAST_BIAS) for u in contribution.updates)
    return sum_in_order(shares)


def _central(
    state: ServerState,
    kept: dict[str, Any],
    model: tuple[np.ndarray, np.ndarray],
    servers: tuple[str, ...] = (NEBS, EBS),
) -> ServerState:
    """Return the state with this central model, from which these servers continue."""
    for server in servers:
        kept.pop(server, None)
        kept.pop(f"{server}_buffers", None)
    memory = {**state.memory, AGGREGATE: kept}
    return replace(state, weights=model[0], buffers=model[1], memory=memory)
