"""CSFedAvg (Zhang et al. 2021): the clients whose models diverge least take part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.core.declaration import Need
from layers.logic.core.hook import Hook, ServerContext, ServerSide
from layers.logic.core.messages import Task, Training, Update
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.report import RoundReport
from layers.logic.core.round import OpenRound, Run
from layers.logic.errors import LogicError
from layers.logic.numeric.vectors import norm
from layers.logic.selectors.uniform import CohortSelector
from layers.settings import Fraction, PositiveShare, Share

METRIC = "divergence"

LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class CsFedAvg(CohortSelector):
    """Draws random cohorts until a set Omega of candidates is full, then cohorts from Omega.

    Zhang et al. 2021, "Client Selection for Federated Learning With Non-IID Data in Mobile Edge
    Computing" (fedmx decides the points that its abstract leaves open). After each round, ceil(rho
    m) of its m participants become candidates: those with the smallest divergence d_k that are not
    candidates yet. The hook `divergence` measures it. When there are ceil(P K) candidates, all
    participants are candidates, and a cohort may have fewer than m clients. When no candidate is
    available, the round is a random one. It keeps the numbers of the candidates.

    Attributes:
        candidates: P, the size of Omega as a share of the population.
        entering: rho, the share of a round's participants that become candidates.
        exploring: share of a cohort that is drawn from the other clients when Omega is full.
    """

    name = "csfedavg"

    candidates: PositiveShare = 0.4
    entering: PositiveShare = 0.2
    exploring: Share = 0.0

    requires = frozenset({Need.TOLD})

    def check(self, logic: Parts) -> None:
        """Check that a hook measures the divergence of each update."""
        if not any(isinstance(hook, Divergence) for hook in logic.hooks):
            raise LogicError(
                f"{type(self).__name__} selects by a divergence that no hook measures; add the "
                "hook divergence"
            )

    def run(self, round: OpenRound) -> Run[None]:
        """Draw from all clients, or from the candidates when there are enough of them."""
        clients = round.sizes.ids
        m = self.size(clients.size)
        drawn = round.rng.permutation(clients)
        places = math.ceil(self.candidates * round.all_clients - 1e-9)
        omega = round.memory.get("omega", clients[:0])[:places]
        known = np.isin(drawn, omega)
        if omega.size >= places and known.any():
            others = int(np.floor(self.exploring * m + 0.5))
            from_omega = drawn[known][: round.asked(m - others, int(known.sum()))]
            rest = drawn[~known][: round.asked(others, int((~known).sum()))] if others else []
            m = min(m - others, int(known.sum())) + min(others, len(rest))
            drawn = np.concatenate([from_omega, np.array(rest, np.int64)])
        else:
            drawn = drawn[: round.asked(m)]
        for client in sorted(drawn):
            round.train(client)
        yield from round.until(accepted=max(m, 1))

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Add the participants with the smallest divergence to the candidates.

        `run` knows how many candidates there may be; once there are enough, only candidates take
        part, so that none are added.
        """
        omega = memory.get("omega", np.zeros(0, np.int64))
        known = set(omega.tolist())
        accepted = [one for one in report.clients if one.status == "accepted"]
        away = sorted(
            (one.metrics[METRIC], one.client)
            for one in accepted
            if METRIC in one.metrics and one.client not in known
        )
        number = math.ceil(self.entering * len(accepted) - 1e-9)
        new = np.array([client for _, client in away[:number]], np.int64)
        return {**memory, "omega": np.concatenate([omega, new])} if new.size else memory


@dataclass(frozen=True)
class Divergence(Hook):
    """The metric d_k = ||w_k - w_aux|| / ||w_aux|| of every update, which a selector can use.

    Zhang et al. 2021, "Client Selection for Federated Learning With Non-IID Data in Mobile Edge
    Computing": in each round the server trains w_aux from the global model, as a client would, on a
    small balanced set of its own. The set is taken out of the training samples. This costs the
    server one client's training in each round. Neither side keeps anything, and
    nothing more is sent.

    Attributes:
        held_out: the server's set as a share of all training samples.
    """

    name = "divergence"

    held_out: Fraction = 0.01

    class Server(ServerSide["Divergence"]):
        def __init__(self, hook: Divergence) -> None:
            super().__init__(hook)
            self._training = Training()
            self._first: tuple[np.ndarray, int] | None = None
            self._starts: dict[int, np.ndarray] = {}  # of clients that did not get the global model
            self._model: np.ndarray | None = None

        def leave_out(self, clients: Sequence[int], context: ServerContext) -> Mapping[int, str]:
            self._training = context.training  # the task of a straggler has another
            return {}

        def send(self, task: Task, context: ServerContext) -> Task:
            if context.auxiliary is None:
                raise LogicError(
                    "divergence: this server has no samples of its own to train on; give its Logic "
                    "an auxiliary"
                )
            if self._first is None:
                # Of the round's first client: w_aux does not depend on the order of answers.
                self._first = (task.buffers, context.seed)
            if task.weights.size and task.weights is not context.start:
                self._starts[task.client] = task.weights
            return task

        def receive(self, update: Update, context: ServerContext) -> Update:
            auxiliary = self._trained(context)
            if update.delta.shape != auxiliary.shape:
                return update  # the server's next check rejects it
            away = self._starts.get(update.client, context.start) + update.delta
            away -= auxiliary
            metrics = {**update.metrics, METRIC: norm(away) / max(norm(auxiliary), LEAST)}
            return replace(update, metrics=metrics)

        def _trained(self, context: ServerContext) -> np.ndarray:
            if self._model is None:
                assert context.auxiliary is not None, "send has seen to that"
                assert self._first is not None, "a task comes before its update"
                buffers, seed = self._first
                self._model = context.auxiliary(context.start, buffers, self._training, seed)
            return self._model


@settings_of_parts()
def csfedavg() -> Preset:
    """CSFedAvg (Zhang et al. 2021): FedAvg with the clients whose models look least biased."""
    return Preset(CsFedAvg(), Mean(), (Divergence(),))
