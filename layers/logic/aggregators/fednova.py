"""Normalised averaging of unequal local work (FedNova: Wang et al. 2020, equations 3 to 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layers.arithmetic import sum_in_order
from layers.logic.aggregators.mean import WeightedMean, WeightedSum, stepped
from layers.logic.core.aggregator import Contribution
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.parts import Parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.hooks.local_gradients import FedProx
from layers.logic.numeric.vectors import accumulation
from layers.settings import NotNegative


class _Work(WeightedSum):
    """The sums of the normalised updates, and of the clients' work."""

    unit = 0.0  # ||a|| of the first client; all are taken relative to it
    accumulated = 0.0  # sum of n_i ||a_i|| / unit
    steps = 0.0  # sum of n_i tau_i


@dataclass(frozen=True)
class FedNova(WeightedMean):
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

    fold = _Work
    requires = frozenset({Need.EACH_CLIENT, Need.STEPS, Need.SGD})
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

    def weight(self, contribution: Contribution) -> float:
        return float(contribution.samples)

    def factor(self, total: _Work, contribution: Contribution) -> float:
        (update,), training = contribution.updates, contribution.training
        a = accumulation(update.steps, training.learning_rate, training.momentum, self.mu)
        if a <= 0:  # a client without steps has no direction
            return 0.0
        weight = self.weight(contribution)
        total.unit = total.unit or a
        total.accumulated += weight * (a / total.unit)
        total.steps += weight * update.steps
        return total.unit / a

    def finish(self, total: _Work, state: ServerState) -> ServerState:
        by_steps = self.effective == "steps" or (self.effective == "auto" and self.mu > 0)
        delta = total.mean()
        if total.unit:
            # Relative to the unit, so that equal steps multiply by exactly 1.
            work = total.steps / total.unit if by_steps else total.accumulated
            delta *= work / total.weight
        return stepped(state, delta, total.buffers.mean())
