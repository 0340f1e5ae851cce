"""OfflineKP-FL: who has trained offers its norm; the best set that can still upload is granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from layers.logic.algorithms.knapsack.reported_times import check_deadline, deadline_of
from layers.logic.algorithms.knapsack.trained_in_time import ask_everybody, everybody_in_time
from layers.logic.core.messages import Offer, Verdict
from layers.logic.core.plan import Plan, Population
from layers.logic.core.selector import Inquiry, PendingOffers, Selector
from layers.logic.errors import LogicError
from layers.logic.numeric.knapsack import Table, solve_exact
from layers.logic.numeric.knapsack.table import cells_down, cells_up

if TYPE_CHECKING:
    from layers.logic.round.logic import Logic

CELLS = 100_000  # of a table; more would cost seconds and gigabytes


@dataclass(frozen=True, eq=False)
class _Solved:
    """What the knapsack after one more arrival came to.

    Attributes:
        value: V.
        at_s: when the last of those that it was solved for had trained.
        room_s: from then to the deadline.
        places: S among those that had arrived; not known of a table until it is asked.
        upload_s: of all of S; likewise.
        table: that it was read from, if any.
    """

    value: float = 0.0
    at_s: float = 0.0
    room_s: float = 0.0
    places: tuple[int, ...] = ()
    upload_s: float = 0.0
    table: Table | None = None


@dataclass(frozen=True, eq=False)
class _Course:
    """How far a round's offers have come.

    Attributes:
        arrived: how many of them were looked at.
        newest: the last of these.
        last: what was solved for it.
        best: of all that were solved, the first with the highest V.
        stopped: whether the round is decided.
    """

    arrived: int = 0
    newest: Offer | None = None
    last: _Solved = _Solved()
    best: _Solved = _Solved()
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

    serial_uploads = True

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

    def on_offers(self, pending: PendingOffers, so_far: Any) -> tuple[Sequence[Verdict], Any]:
        """Solve the knapsack for each new arrival; answer everybody once V falls."""
        course: _Course = so_far or _Course()
        known = course.arrived
        if known and (
            len(pending.offers) < known or pending.offers[known - 1] is not course.newest
        ):
            course = _Course()  # one of them was lost: as if it had never come
        deadline_s = deadline_of(pending.population)
        for place in range(course.arrived, len(pending.offers)):
            if not course.stopped:
                course = self._arrive(course, pending.offers, place, deadline_s)
        if course.stopped or not pending.waiting:
            return self._verdicts(course, pending), course
        return [], course

    def _arrive(
        self, course: _Course, offers: Sequence[Offer], place: int, deadline_s: float
    ) -> _Course:
        """Return the course with one arrival more (one iteration of algorithm 1)."""
        offer, last, best = offers[place], course.last, course.best
        room_s = deadline_s - offer.at_s
        if room_s <= 0:
            return _Course(place + 1, offer, last, best, stopped=True)
        if self.solver == "dp":
            solved = self._read(last, place, offer, room_s)
        elif last.upload_s <= room_s < offer.upload_s:
            # With less room, and nobody new that fits, S is still the best.
            solved = _Solved(last.value, offer.at_s, room_s, last.places, last.upload_s)
        else:
            solved = _solve(offers[: place + 1], room_s)
        fell = solved.value < last.value
        if self.stop == "non_increase":
            fell = solved.value <= last.value
        best = solved if solved.value > best.value else best
        return _Course(place + 1, offer, solved, best, stopped=fell and last.value > 0)

    def _read(self, last: _Solved, place: int, offer: Offer, room_s: float) -> _Solved:
        """Return what the table with one arrival more says."""
        room = cells_down(room_s, self.resolution_s)
        table = last.table or Table.of(room)
        table = table.with_item(place, offer.norm, cells_up(offer.upload_s, self.resolution_s))
        return _Solved(table.value(room), offer.at_s, room_s, table=table)

    def _verdicts(self, course: _Course, pending: PendingOffers) -> list[Verdict]:
        """Return everybody's verdict: those that were granted first, as they arrived."""
        if not pending.offers:
            return []
        round = pending.offers[0].round
        chosen = course.best if self.output == "best" else course.last
        places = chosen.places
        if chosen.table is not None:
            places = chosen.table.choose(cells_down(chosen.room_s, self.resolution_s))
        dated_s = chosen.at_s if self.output == "best" and places else None
        granted = [pending.offers[place].client for place in places]
        taken = set(granted)
        others = [offer.client for offer in pending.offers if offer.client not in taken]
        return [
            *(Verdict(round, client, granted=True, dated_s=dated_s) for client in granted),
            *(
                Verdict(round, client, granted=False, dated_s=dated_s)
                for client in (*others, *sorted(pending.waiting))
            ),
        ]


def _solve(offers: Sequence[Offer], room_s: float) -> _Solved:
    """Return the best set of those that have arrived, the last of them now."""
    order = np.argsort([offer.client for offer in offers])  # ties go to the lowest numbers
    norms = np.array([offer.norm for offer in offers])[order]
    uploads_s = np.array([offer.upload_s for offer in offers])[order]
    choice = solve_exact(norms, uploads_s, room_s)
    places = tuple(sorted(order[list(choice.items)].tolist()))
    return _Solved(choice.value, offers[-1].at_s, room_s, places, choice.weight)
