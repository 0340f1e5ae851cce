"""OnlineKP-FL: who has trained offers its norm, and is granted or declined at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from layers.logic.algorithms.knapsack.reported_times import check_deadline, deadline_of
from layers.logic.algorithms.knapsack.trained_in_time import ask_everybody, everybody_in_time
from layers.logic.core.messages import Offer, Verdict
from layers.logic.core.plan import Plan, Population
from layers.logic.core.selector import Inquiry, PendingOffers, Selector
from layers.logic.errors import LogicError

if TYPE_CHECKING:
    from layers.logic.core.report import ClientReport, RoundReport
    from layers.logic.round.logic import Logic

LARGEST, LOWEST, HIGHEST = "largest", "L0", "U"


class _Clock(NamedTuple):
    """E, when the uploads granted so far will have ended, and when the last client had trained."""

    elapsed_s: float = 0.0
    trained_s: float = 0.0


@dataclass(frozen=True)
class OnlineKP(Selector):
    """OnlineKP-FL, algorithm 2: the threshold of an online knapsack, on norm by seconds.

    Everybody trains and offers ||delta_k||, by ascending t_UC. With E the time that is taken, M the
    largest norm that was offered in the last round, and the time since the one before had trained,

        z = E / T_round
        weight = t_UC - t_UC of the one before + t_UL
        L = L0 ||delta_k|| / M (L0 while there is no M), U at the most
        psi(z) = L up to z = 1 / (1 + ln(U / L)), then (U e / L)^z L / e, and U from z = 1

    a client is granted if ||delta_k|| / weight >= psi(z) and max(E, t_UC) + t_UL <= T_round; E
    becomes max(E, t_UC), plus t_UL if it is granted. An update of zero is declined. Keeps M, and
    the L0 and U that it found.

    Attributes:
        L0: lowest worth of a second, in norm a second, above 0; None: the first round takes whoever
            fits, and the lowest and the highest norm by second of upload in it become L0 and U. One
            that is too high for the model's norms takes nobody; 0.015 suits norms of order 1 and
            uploads of 100 s.
        U: highest, L0 or more; None with L0.
        value: of a client: its norm (``"raw"``), or its norm by M, with L = L0 (``"normalised"``).
        ask_times: clients say before the round how long they will train and upload; those that will
            not have trained by the deadline, or do not answer, are left out.
    """

    L0: float | None = None
    U: float | None = None
    value: Literal["raw", "normalised"] = "raw"
    ask_times: bool = True

    serial_uploads = True

    def __post_init__(self) -> None:
        if (self.L0 is None) != (self.U is None):
            raise LogicError(f"L0 and U are given together or not at all: {self.L0} and {self.U}")
        if self.L0 is not None and self.U is not None and not 0 < self.L0 <= self.U < math.inf:
            raise LogicError(f"L0 must be above 0 and U not below it, not {self.L0} and {self.U}")

    def check(self, logic: Logic) -> None:
        """Refuse a round without a deadline."""
        check_deadline("online-kp", logic)

    def inquire(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Sequence[Inquiry]:
        """Ask everybody how long it will take."""
        return ask_everybody(population) if self.ask_times else ()

    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Let everybody train that will have trained in time."""
        return everybody_in_time(population, self.ask_times)

    def on_offers(self, pending: PendingOffers, so_far: Any) -> tuple[Sequence[Verdict], Any]:
        """Answer each offer, in order of arrival."""
        clock: _Clock = so_far or _Clock()
        deadline_s = deadline_of(pending.population)
        verdicts = []
        for offer in sorted(pending.offers, key=lambda offer: (offer.at_s, offer.client)):
            ready_s = max(clock.elapsed_s, offer.at_s)
            granted = (
                offer.norm > 0
                and ready_s + offer.upload_s <= deadline_s
                and self._worth(offer, clock, deadline_s, pending.memory)
            )
            verdicts.append(Verdict(offer.round, offer.client, granted))
            clock = _Clock(ready_s + (offer.upload_s if granted else 0.0), offer.at_s)
        return verdicts, clock

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Keep the largest norm that was offered; of the first round the worth of a second too."""
        offered = [c for c in report.clients if "norm" in c.metrics and c.status != "rejected"]
        if not offered:
            return memory
        learned = {**memory, LARGEST: max(client.metrics["norm"] for client in offered)}
        if self.L0 is None and LOWEST not in memory:
            worths = [worth for worth in map(_worth_of, offered) if worth is not None]
            if worths:
                unit = learned[LARGEST] if self.value == "normalised" else 1.0
                learned |= {LOWEST: min(worths) / unit, HIGHEST: max(worths) / unit}
        return learned

    def _worth(
        self, offer: Offer, clock: _Clock, deadline_s: float, memory: Mapping[str, Any]
    ) -> bool:
        lowest, highest = memory.get(LOWEST, self.L0), memory.get(HIGHEST, self.U)
        if lowest is None or highest is None:  # yet to be found
            return True
        largest = memory.get(LARGEST, 0.0)
        value = offer.norm
        if largest > 0 and self.value == "raw":
            lowest *= offer.norm / largest
        elif largest > 0:
            value = offer.norm / largest
        weight = offer.at_s - clock.trained_s + offer.upload_s
        if weight <= 0:  # takes no time
            return True
        return value / weight >= threshold(clock.elapsed_s / deadline_s, lowest, highest)


def threshold(z: float, lowest: float, highest: float) -> float:
    """Return psi(z): the least worth of a second for which one is still given.

    Args:
        z: share of the time that is taken, from 0.
        lowest: L; counts as `highest` if it is above that.
        highest: U.
    """
    if z >= 1:
        return highest
    lowest = min(lowest, highest)
    if lowest <= 0:  # by underflow, of a norm that is nearly nothing
        return 0.0
    growth = 1 + math.log(highest) - math.log(lowest)  # of the logarithm, from z = 0 to 1
    if z <= 1 / growth:
        return lowest
    return math.exp(z * growth + math.log(lowest) - 1)


def _worth_of(client: ClientReport) -> float | None:
    """Return a client's norm by second of its upload, if there was one."""
    times = client.times
    if client.status != "accepted" or times is None:
        return None
    if times.sending_s is None or times.ended_s is None or times.ended_s <= times.sending_s:
        return None
    norm = client.metrics["norm"]
    return norm / (times.ended_s - times.sending_s) if norm > 0 else None
