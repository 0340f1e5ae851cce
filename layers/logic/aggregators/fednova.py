"""Normalised averaging of unequal local work (FedNova: Wang et al. 2020, equations 3 to 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from layers.arithmetic import sum_in_order
from layers.logic.aggregators.mean import BufferMean, add_scaled, stepped
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.parts import Parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.hooks.local_gradients import FedProx
from layers.logic.numeric.vectors import accumulation
from layers.settings import NotNegative


@dataclass
class _Sum:
    delta: np.ndarray
    buffers: BufferMean
    unit: float = 0.0  # ||a|| of the first client; all are taken relative to it
    samples: float = 0.0
    accumulated: float = 0.0  # sum of n_i ||a_i|| / unit
    steps: float = 0.0  # sum of n_i tau_i


@dataclass(frozen=True)
class FedNova(Aggregator):
    """w + tau_eff sum_i (n_i / n) delta_i / ||a_i||_1: a client's mean step counts, not their sum.

    ||a_i||_1 is the weight with which client i counted its gradients (see `accumulation`). It is
    computed here from the number of local steps in its update. If all clients take the same number
    of steps, the model is FedAvg's, bit for bit unless mu is set. Memory is that of one update and
    the sum.

    Attributes:
        mu: mu of the hook `fedprox`; 0 without this hook.
        effective: tau_eff: ``"a"`` is sum_i (n_i / n) ||a_i||_1, ``"steps"`` the mean number of
            steps sum_i (n_i / n) tau_i; ``"auto"`` is ``"a"``, and ``"steps"`` with mu, as in the
            authors' own code.
    """

    name = "fednova"

    mu: NotNegative = 0.0
    effective: Literal["auto", "a", "steps"] = "auto"

    requires = frozenset({Need.EACH_CLIENT, Need.STEPS})
    provides = frozenset({Trait.BY_SLICES, Trait.BY_SAMPLES})

    def check(self, logic: Parts) -> None:
        """Refuse local solvers whose ||a||_1 differs or is not known."""
        mu = sum_in_order(hook.mu for hook in logic.hooks if isinstance(hook, FedProx))
        if mu != self.mu:
            raise LogicError(
                f"FedNova's mu is {self.mu}, and that of the hook fedprox {mu}; they must be "
                "the same, since FedNova normalises by what the clients do"
            )
        if self.mu and logic.training.momentum:
            raise LogicError(
                "FedNova has no normalisation for momentum together with mu; set one of them to 0"
            )
        if logic.training.learning_rate * self.mu >= 1:
            raise LogicError(
                f"FedNova: learning_rate {logic.training.learning_rate} times mu {self.mu} "
                "is 1 or more"
            )

    def init(self, state: ServerState) -> _Sum:
        """Start with nothing."""
        return _Sum(np.zeros(state.weights.size), BufferMean(state))

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        """Add one normalised update."""
        (update,), training = contribution.updates, contribution.training
        weight = float(contribution.samples)
        total.buffers.add(contribution)
        total.samples += weight
        a = accumulation(update.steps, training.learning_rate, training.momentum, self.mu)
        if a > 0:  # a client without steps has no direction
            total.unit = total.unit or a
            total.accumulated += weight * (a / total.unit)
            total.steps += weight * update.steps
            add_scaled(total.delta, contribution.delta, weight * (total.unit / a))
        return total

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        """Return the state with the normalised mean applied."""
        by_steps = self.effective == "steps" or (self.effective == "auto" and self.mu > 0)
        total.delta /= total.samples
        if total.unit:
            # Relative to the unit, so that equal steps multiply by exactly 1.
            work = total.steps / total.unit if by_steps else total.accumulated
            total.delta *= work / total.samples
        return stepped(state, total.delta, total.buffers.mean())
