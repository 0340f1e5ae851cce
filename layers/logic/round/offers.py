"""The book of offers: who has offered, who may still, and what became of each offer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from layers.logic.core.messages import Offer, Verdict
from layers.logic.core.plan import Population
from layers.logic.core.selector import SELECT, PendingOffers, Selector
from layers.logic.core.state import ServerState


class OfferBook:
    """The offers of one round, and the selector's verdicts on them.

    Args:
        selector: gives verdicts.
        population: that the round's plan was made from.
        state: after the round before.
        simulated: whether the clients are simulated.

    Attributes:
        all: every offer of the round, by client, whatever became of it.
        granted: the clients that may send their update.
        waiting: the clients that have a task and have neither offered nor been lost.
        open: the offers without a verdict, by client, in order of arrival.
    """

    def __init__(
        self,
        selector: Selector,
        population: Population,
        state: ServerState,
        simulated: bool = True,
    ) -> None:
        self._selector = selector
        self._population = population
        self._memory = state.memory.get(SELECT, {})
        self._simulated = simulated
        self._timer_s = self._fired_s = -math.inf  # when it was last set for, and last fired
        self._so_far: Any = None  # what the selector made of the offers so far
        self._listed: list[Offer] = []  # `open` as a list that grows: a copy a call would be dear
        self.all: dict[int, Offer] = {}
        self.granted: set[int] = set()
        self.waiting: dict[int, None] = {}
        self.open: dict[int, Offer] = {}

    def add(self, offer: Offer) -> None:
        """Enter a sound offer."""
        self.open[offer.client] = offer
        self._listed.append(offer)
        self.all[offer.client] = offer
        del self.waiting[offer.client]

    def remove(self, client: int) -> None:
        """Strike a client out: nothing more will come from it."""
        self.open.pop(client, None)
        self.waiting.pop(client, None)

    def verdicts(self, now_s: float, timer_fired: bool = False) -> Sequence[Verdict]:
        """Return what the selector says, `now_s` seconds after the round began."""
        if timer_fired:
            self._fired_s = self._timer_s
        pending = self._pending(now_s, timer_fired)
        verdicts, self._so_far = self._selector.on_offers(pending, self._so_far)
        return verdicts

    def timer_s(self, now_s: float) -> float | None:
        """Return when the selector has to be asked again though nothing comes; None: never.

        A moment for which the timer has fired already is past, and does not count again.
        """
        if not self.open or not self.waiting:
            return None
        at_s = self._selector.wait_until(self._pending(now_s), self._so_far)
        if at_s is None or at_s <= self._fired_s:
            return None
        self._timer_s = at_s
        return at_s

    def _pending(self, now_s: float, timer_fired: bool = False) -> PendingOffers:
        if len(self._listed) != len(self.open):
            self._listed = list(self.open.values())
        return PendingOffers(
            self._listed,
            self.waiting.keys(),
            now_s,
            self._population,
            self._memory,
            self._simulated,
            timer_fired,
        )

    def settle(self, verdict: Verdict) -> Offer | None:
        """Close a client's offer with a verdict; return the offer, None if there was none."""
        offer = self.open.pop(verdict.client, None)
        if offer is not None and verdict.granted:
            self.granted.add(verdict.client)
        return offer
