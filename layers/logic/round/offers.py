"""The book of offers: who has offered, who may still, and what became of each offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layers.logic.core.messages import Offer, Verdict
from layers.logic.core.plan import Population
from layers.logic.core.selector import SELECT, PendingOffers, Selector
from layers.logic.core.state import ServerState


class OfferBook:
    """The offers of one round, and the selector's verdicts on them.

    Attributes:
        norms: of all offers of the round, by client, whatever became of them.
        granted: the clients that may send their update.
        waiting: the clients that have a task and have neither offered nor been lost.
        open: the offers without a verdict, by client, in order of arrival.
    """

    def __init__(self, selector: Selector, population: Population, state: ServerState) -> None:
        self._selector = selector
        self._population = population
        self._memory = state.memory.get(SELECT, {})
        self._so_far: Any = None  # what the selector made of the offers so far
        self._listed: list[Offer] = []  # `open` as a list that grows: a copy a call would be dear
        self.norms: dict[int, float] = {}
        self.granted: set[int] = set()
        self.waiting: dict[int, None] = {}
        self.open: dict[int, Offer] = {}

    def add(self, offer: Offer) -> None:
        """Enter a sound offer."""
        self.open[offer.client] = offer
        self._listed.append(offer)
        self.norms[offer.client] = offer.norm
        del self.waiting[offer.client]

    def remove(self, client: int) -> None:
        """Strike a client out: nothing more will come from it."""
        self.open.pop(client, None)
        self.waiting.pop(client, None)

    def verdicts(self, now_s: float) -> Sequence[Verdict]:
        """Return what the selector says, `now_s` seconds after the round began."""
        if len(self._listed) != len(self.open):
            self._listed = list(self.open.values())
        pending = PendingOffers(
            self._listed, self.waiting.keys(), now_s, self._population, self._memory
        )
        verdicts, self._so_far = self._selector.on_offers(pending, self._so_far)
        return verdicts

    def settle(self, verdict: Verdict) -> Offer | None:
        """Close a client's offer with a verdict; return the offer, None if there was none."""
        offer = self.open.pop(verdict.client, None)
        if offer is not None and verdict.granted:
            self.granted.add(verdict.client)
        return offer
