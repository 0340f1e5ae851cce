"""A selector says who takes part in a round; a pure function of memory, population and seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layers.logic.exchange import Offer, Verdict
from layers.logic.plan import Plan, Population
from layers.logic.survey import Question

if TYPE_CHECKING:
    from layers.logic.report import RoundReport


class Selector(ABC):
    """Who takes part; the settings are the attributes of a frozen dataclass."""

    def surveys(self) -> tuple[Question, ...]:
        """Return what every client is asked once, before its first round."""
        return ()

    @abstractmethod
    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Return the lanes of round `round`."""

    def admit(self, offers: Sequence[Offer], waiting: int) -> Sequence[Verdict]:
        """Answer offers, now or later.

        Args:
            offers: those that have no verdict yet, in order of arrival; the last one is new,
                unless a client was lost.
            waiting: clients of the plan that have neither offered nor been lost.

        When nobody is waited for, what is still unanswered counts as declined.
        """
        return [Verdict(offer.round, offer.client, granted=True) for offer in offers]

    def learn(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Return the memory after a round."""
        return memory
