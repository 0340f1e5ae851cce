"""Evaluation by clients: some of them evaluate a round's new model on samples of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from layers.logic.core.report import ClientReport, RoundReport, Traffic
from layers.logic.core.state import ServerState
from layers.logic.core.survey import EVALUATE, Question
from layers.logic.round.exchange import Costs
from layers.logic.round.port import Port, Steps
from layers.logic.seeds import generator


@dataclass(frozen=True)
class ClientEvaluation:
    """Which clients evaluate, and when.

    Attributes:
        every: rounds from one evaluation to the next.
        fraction: the share of the clients that can be asked, at least one; in the last round, all.
        values: how many numbers an answer has at most.
        rounds: the number of the last round, which is always evaluated.
    """

    every: int
    fraction: float
    values: int
    rounds: int

    def is_due(self, round: int) -> bool:
        """Return whether clients evaluate the model after a round."""
        return round % self.every == 0 or round == self.rounds

    def evaluated(
        self,
        report: RoundReport,
        after: ServerState,
        clients: Sequence[int],
        seed: int,
        port: Port,
    ) -> Steps[RoundReport]:
        """Ask clients; return the report with the sums of those that answered, and the costs.

        Args:
            report: the report of the round.
            after: the state with the new model.
            clients: those that can be asked.
            seed: of the experiment.
            port: asks them.
        """
        last = after.round == self.rounds  # all sites see the final model
        number = len(clients) if last else max(round(self.fraction * len(clients)), 1)
        rng = generator(seed, "evaluation", after.round)
        asked = sorted(rng.permutation(sorted(clients))[:number].tolist())
        question = Question(
            EVALUATE,
            round=after.round,
            values=self.values,
            model_bytes=after.weights.nbytes + after.buffers.nbytes,
            weights=after.weights,
            buffers=after.buffers,
        )
        replies = yield from port.ask(question, asked)
        costs = yield from port.costs()
        return _with_costs(
            replace(report, evaluations={one.client: one.values for one in replies}), costs
        )


def _with_costs(report: RoundReport, costs: Costs) -> RoundReport:
    """Return a report with further costs, those of each client in its last report."""
    left = dict(costs.traffic)

    def add(reports: Sequence[ClientReport]) -> tuple[ClientReport, ...]:
        done = [
            replace(one, traffic=one.traffic + left.pop(one.client, Traffic()))
            for one in reversed(reports)
        ]
        return tuple(reversed(done))

    clients, others = add(report.clients), add(report.others)
    new = [ClientReport(one, "not-selected", traffic=sent) for one, sent in left.items()]
    return replace(
        report,
        clients=clients,
        others=tuple(sorted((*others, *new), key=lambda one: one.client)),
        traffic=sum(costs.traffic.values(), report.traffic),
        took_s=costs.took_s,
        overhead=report.overhead + costs.overhead,
    )
