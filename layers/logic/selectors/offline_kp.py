"""OfflineKP-FL: who has trained offers its norm; the best set that can still upload is granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.exchange import Offer, Verdict
from layers.logic.knapsack import Table, solve_exact
from layers.logic.knapsack.choice import Choice
from layers.logic.knapsack.table import cells_down, cells_up
from layers.logic.plan import Plan, Population
from layers.logic.selector import Bids, Inquiry, Selector
from layers.logic.selectors.told_times import check_deadline, deadline_of
from layers.logic.selectors.trained_in_time import ask_everybody, everybody_in_time

if TYPE_CHECKING:
    from layers.logic.logic import Logic

CELLS = 100_000  # of a table; more would cost seconds and gigabytes


@dataclass(frozen=True, eq=False)
class _Solved:
    """What the knapsack after one more arrival came to.

    Attributes:
        clients: S, in ascending order.
        value: V.
        upload_s: of all of S.
        at_s: when the last of those that it was solved for had trained.
    """

    clients: tuple[int, ...] = ()
    value: float = 0.0
    upload_s: float = 0.0
    at_s: float = 0.0


@dataclass(frozen=True, eq=False)
class _Course:
    """How far a round's offers have come."""

    arrived: tuple[Offer, ...] = ()
    last: _Solved = _Solved()
    best: _Solved = _Solved()
    table: Table | None = None
    stopped: bool = False


@dataclass(frozen=True)
class OfflineKP(Selector):
    """OfflineKP-FL, algorithm 1: a knapsack is solved anew whenever a client has trained.

    Everybody trains and offers ||delta_k||. Of those that have, S maximises sum ||delta_k||
    subject to sum t_UL <= T_round - max t_UC: uploads are serial and begin when the last has
    trained. Waiting for one more brings a choice and costs time; when the value V falls, the best S
    that there was is granted, and everybody else declined, who still trains included. While nothing
    fits, and until V falls or everybody has offered, the round waits. Keeps nothing.

    Attributes:
        stop: the round is decided when V is below the one before (``"strict"``), or not above it
            (``"non_increase"``, as the algorithm is printed).
        output: ``"best"`` grants the best S, from the moment when it was found (the clock of a
            simulation goes back to it; a real one cannot, and if it has not enough time left,
            uploads are late); ``"last"`` the one that was solved last, which still fits: for a
            deployment.
        solver: ``"exact"``, or ``"dp"``, a table with weights rounded up to `resolution_s`.
        resolution_s: of the table, in seconds.
        ask_times: clients say before the round how long they will train and upload; those that will
            not have trained by the deadline, or do not answer, are left out.
    """

    stop: Literal["strict", "non_increase"] = "strict"
    output: Literal["best", "last"] = "best"
    solver: Literal["exact", "dp"] = "exact"
    resolution_s: float = 1.0
    ask_times: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.resolution_s < np.inf:
            raise LogicError(f"resolution_s must be above 0, not {self.resolution_s}")

    def check(self, logic: Logic) -> None:
        """Refuse a round without a deadline, and a table that is too large."""
        check_deadline("offline-kp", logic)
        cells = (logic.deadline_s or 0.0) / self.resolution_s
        if self.solver == "dp" and cells > CELLS:
            raise LogicError(
                f"offline-kp with solver dp would need a table of {cells:.0f} cells, {CELLS} being "
                f"the most; set resolution_s to {(logic.deadline_s or 0.0) / CELLS:g} or more"
            )

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

    def admit(self, bids: Bids, so_far: Any) -> tuple[Sequence[Verdict], Any]:
        """Solve the knapsack for each new arrival; answer everybody once V falls."""
        course: _Course = so_far or _Course()
        if not course.stopped:
            course = self._catch_up(course, bids)
            if course.stopped or not bids.waiting:
                return self._verdicts(course, bids), replace(course, stopped=True)
        return [], course

    def _catch_up(self, course: _Course, bids: Bids) -> _Course:
        """Return the course with the offers that are new in `bids`."""
        known = len(course.arrived)
        if known and (len(bids.offers) < known or bids.offers[known - 1] != course.arrived[-1]):
            course, known = _Course(), 0  # one of them was lost: as if it had never come
        for offer in sorted(bids.offers[known:], key=lambda offer: (offer.at_s, offer.client)):
            if not course.stopped:
                course = self._arrive(course, offer, deadline_of(bids.population))
        return course

    def _arrive(self, course: _Course, offer: Offer, deadline_s: float) -> _Course:
        """Return the course with one arrival more (one iteration of algorithm 1)."""
        arrived = (*course.arrived, offer)
        room_s = deadline_s - offer.at_s
        if room_s <= 0:
            return replace(course, arrived=arrived, stopped=True)
        table = course.table
        if self.solver == "dp":
            table = table or Table.of(cells_down(deadline_s, self.resolution_s))
            cells = cells_up(offer.upload_s, self.resolution_s)
            table = table.with_item(len(arrived) - 1, offer.norm, cells)
        solved = self._solve(arrived, course.last, table, room_s)
        last, best = course.last, course.best
        fell = solved.value < last.value
        if self.stop == "non_increase":
            fell = solved.value <= last.value
        if solved.value > best.value:
            best = solved
        return _Course(arrived, solved, best, table, stopped=fell and last.value > 0)

    def _solve(
        self, arrived: tuple[Offer, ...], last: _Solved, table: Table | None, room_s: float
    ) -> _Solved:
        """Return the best set of those that have arrived, the last of them now."""
        new = arrived[-1]
        if last.upload_s <= room_s < new.upload_s and table is None:
            return replace(last, at_s=new.at_s)  # with less room, and nobody new: S is still best
        if table is not None:
            places: tuple[int, ...] = table.choose(cells_down(room_s, self.resolution_s))
        else:
            by_number = sorted(range(len(arrived)), key=lambda place: arrived[place].client)
            norms = np.array([arrived[place].norm for place in by_number])
            uploads = np.array([arrived[place].upload_s for place in by_number])
            places = tuple(by_number[k] for k in solve_exact(norms, uploads, room_s).items)
        offers = [arrived[place] for place in places]
        sums = Choice.of(
            range(len(offers)),
            np.array([offer.norm for offer in offers]),
            np.array([offer.upload_s for offer in offers]),
        )
        clients = tuple(sorted(offer.client for offer in offers))
        return _Solved(clients, sums.value, sums.weight, new.at_s)

    def _verdicts(self, course: _Course, bids: Bids) -> list[Verdict]:
        """Return everybody's verdict: those that were granted first, as they arrived."""
        if not bids.offers:
            return []
        round = bids.offers[0].round
        chosen = course.best if self.output == "best" else course.last
        dated_s = chosen.at_s if self.output == "best" and chosen.clients else None
        granted = set(chosen.clients)
        others = [offer.client for offer in bids.offers if offer.client not in granted]
        return [
            *(
                Verdict(round, offer.client, granted=True, dated_s=dated_s)
                for offer in bids.offers
                if offer.client in granted
            ),
            *(
                Verdict(round, client, granted=False, dated_s=dated_s)
                for client in (*others, *sorted(bids.waiting))
            ),
        ]
