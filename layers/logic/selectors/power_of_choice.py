"""Power-of-choice (Cho et al. 2020): of candidates drawn by size, those with the highest loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from layers.logic.core.declaration import Need
from layers.logic.core.messages import Slot
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import column, with_numbers
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError
from layers.logic.selectors.draws import SMALL, draw_by_size, draw_weighted
from layers.logic.selectors.uniform import CohortSelector
from layers.settings import Count, WholeNumber

if TYPE_CHECKING:
    from layers.logic.core.report import RoundReport

LOSS = "loss"
"""The name of the question, and the key of the losses that were reported."""


@dataclass(frozen=True)
class PowerOfChoice(CohortSelector):
    """Draws d candidates by n_k without replacement, and selects the m with the highest loss.

    It needs `aggregator: {name: mean, weights: uniform}`, or another one without `weights:
    samples`, since the sizes are in the draw. With ``reported`` losses it keeps each client's last
    loss: that of its training, a mean over its local steps (pi_rpow-d). A client without one counts
    as if its loss were infinite.

    Attributes:
        candidates: d, m or more; None: 2 m. More candidates make learning faster and less fair.
        loss: ``"asked"``: the candidates get the global model in each round and answer with its
            loss (pi_pow-d); ``"reported"``: the selector uses the losses of earlier updates, at no
            cost.
        samples: the number of a candidate's samples for measuring the loss, drawn in each round
            (pi_cpow-d); 0: all.
    """

    name = "power-of-choice"

    candidates: Count | None = None
    loss: Literal["asked", "reported"] = "asked"
    samples: WholeNumber = 0

    requires = frozenset({Need.EQUAL_WEIGHTS, Need.TOLD})

    def __post_init__(self) -> None:
        if self.count is not None and self.candidates is not None and self.candidates < self.count:
            raise LogicError(
                f"candidates must be count or more, not {self.candidates} for {self.count}"
            )

    @property
    def fewest_clients(self) -> int:
        """As many as are asked or drawn."""
        return max(super().fewest_clients, self.candidates or 1)

    def run(self, round: OpenRound) -> Run[None]:
        """Select the candidates with the highest loss; between equal losses, the first drawn."""
        if self.loss == "reported":
            clients = self._candidates(round, round.rng)
            losses = column(round.memory, LOSS, clients, np.inf)
        else:
            clients = self._candidates(round, round.generator("inquire"))
            question = Question(LOSS, samples=self.samples)
            reported = _finite((yield from round.ask(question, sorted(clients.tolist()))))
            clients = np.array(list(reported), np.int64)
            losses = np.array(list(reported.values()), np.float64)
        m = self.size(len(round.clients))
        highest = np.argsort(-losses, kind="stable")[: round.asked(m)]
        for client in sorted(clients[highest]):
            round.train(client)
        yield from round.until(accepted=m)

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Keep the losses that were reported."""
        if self.loss == "asked":
            return memory
        reported = {
            client.client: client.metrics[LOSS]
            for client in report.clients
            if client.status == "accepted" and LOSS in client.metrics
        }
        return with_numbers(memory, LOSS, reported)

    def _candidates(self, round: OpenRound, rng: np.random.Generator) -> np.ndarray:
        """Return d clients in the order in which they were drawn, int64."""
        sizes = round.sizes
        clients = sizes.ids
        m = self.size(clients.size)
        wanted = 2 * m if self.candidates is None else self.candidates
        d = min(max(wanted, round.asked(m)), clients.size)
        if clients.size <= SMALL:
            places = draw_weighted(rng, sizes.sizes.astype(np.float64), d)
        else:
            places = draw_by_size(rng, sizes, d)
        drawn: np.ndarray = clients[places]
        return drawn


def _finite(answers: Mapping[int, Slot]) -> dict[int, float]:
    """Return the losses that candidates answered, by client; only finite numbers."""
    losses = ((client, answer.get(LOSS)) for client, answer in answers.items())
    return {client: x for client, x in losses if isinstance(x, float) and math.isfinite(x)}
