"""OfflineKP-FL: trained clients offer their norms; the best set that can upload is granted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from layers.logic.algorithms.knapsack.reported_times import check_deadline, deadline_of
from layers.logic.algorithms.knapsack.trained_in_time import ask_everybody, everybody_in_time
from layers.logic.core.messages import Offer, Verdict
from layers.logic.core.parts import Parts
from layers.logic.core.plan import Plan, Population
from layers.logic.core.selector import Inquiry, PendingOffers, Selector
from layers.logic.errors import LogicError
from layers.logic.numeric.knapsack import Table, cells_down, cells_up, solve_exact

CELLS = 100_000  # of a table; more would cost seconds and gigabytes
PATIENCE = 0.9  # share of the time that the best set can wait, for what a deployment cannot know


@dataclass(frozen=True, eq=False)
class _Solution:
    """The knapsack after one more arrival, solved.

    Attributes:
        value: V.
        at_s: when the last of the clients that it was solved for had trained.
        room_s: from then to the deadline.
        places: S, as places among the offers; with a table, read from it when they are needed.
        upload_s: of all of S together; 0 with a table.
        table: the table that V was read from, if any.
    """

    value: float = 0.0
    at_s: float = 0.0
    room_s: float = 0.0
    places: tuple[int, ...] = ()
    upload_s: float = 0.0
    table: Table | None = None


@dataclass(frozen=True, eq=False)
class _Progress:
    """What was made of a round's offers so far.

    Attributes:
        arrived: how many of them were looked at.
        newest: the last of these.
        last: the solution after it.
        best: of all solutions, the first with the highest V.
        stopped: whether V has fallen, so that the round is decided.
    """

    arrived: int = 0
    newest: Offer | None = None
    last: _Solution = _Solution()
    best: _Solution = _Solution()
    stopped: bool = False


@dataclass(frozen=True)
class OfflineKP(Selector):
    """OfflineKP-FL, algorithm 1: a knapsack is solved anew whenever a client has trained.

    All clients train and offer ||delta_k||. Of those that have offered, S maximises
    sum ||delta_k|| subject to sum t_UL <= T_round - max t_UC: uploads are serial and begin when the
    last of these clients has trained. To wait for one more client brings a choice and costs time.
    When the value V falls, the best S so far is granted, and all other clients are declined, also
    those that still train. While no offer fits, and until V falls, the round waits for the clients
    that have not offered. The selector keeps nothing from round to round. It works with at most
    10,000 clients.

    A client that never offers does not cost the round:

    - Where the verdict can be dated back (``output`` is ``"best"``, in a simulation), the round
      waits until its deadline, and the best S is granted from the moment when it was found. So the
      wait changes no set and no time.
    - Elsewhere the round waits for nine tenths of the time that the last S can wait and still be
      uploaded before the deadline. V would fall at the end of that time. A simulation whose clients
      reported their times does not need this: all of them come, or are known to be lost.

    Attributes:
        stop: V has fallen when it is below the one before (``"strict"``), or not above it
            (``"non_increase"``, as the algorithm is printed).
        output: in a simulation, ``"best"`` grants the best S, from the moment when it was found;
            ``"last"`` grants the S that was solved last. In a deployment, where no upload can begin
            in the past, both grant the best of the sets that can be uploaded from now on.
        solver: ``"exact"``, or ``"dp"``, a table with weights rounded up to `resolution_s`.
        resolution_s: of the table, in seconds.
        ask_times: whether clients say before the round how long they will train and upload. Then
            clients that will not have trained by the deadline, or do not answer, are left out.
    """

    stop: Literal["strict", "non_increase"] = "strict"
    output: Literal["best", "last"] = "best"
    solver: Literal["exact", "dp"] = "exact"
    resolution_s: float = 1.0
    ask_times: bool = True

    serial_uploads = True
    most_clients = 10_000
    why_limited = "every client trains in every round"

    def __post_init__(self) -> None:
        if not 0 < self.resolution_s < np.inf:
            raise LogicError(f"resolution_s must be above 0, not {self.resolution_s}")

    def check(self, logic: Parts) -> None:
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
        """Ask all clients how long they will take."""
        return ask_everybody(population) if self.ask_times else ()

    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Let all clients train that will have trained in time."""
        return everybody_in_time(population, self.ask_times)

    def on_offers(self, pending: PendingOffers, so_far: Any) -> tuple[Sequence[Verdict], Any]:
        """Solve the knapsack for each new offer; answer all clients once the round is decided."""
        before = so_far or _Progress()
        progress = self._progress(pending, before)
        if not (progress.stopped or not pending.waiting or pending.timer_fired):
            return [], progress
        if pending.simulated and self.output == "best":
            return _verdicts(self._places(progress.best), pending, progress.best.at_s), progress
        now_s = progress.newest.at_s if progress.newest is not None else 0.0
        if progress.newest is before.newest:  # it was not an offer that decided the round
            now_s = max(now_s, pending.now_s)
        solution = self._solution_at(now_s, progress, pending)
        return _verdicts(self._places(solution), pending), progress

    def wait_until(self, pending: PendingOffers, so_far: Any) -> float | None:
        """Return the moment at which the round is decided without those that have not offered."""
        deadline_s = deadline_of(pending.population)
        if pending.simulated and self.output == "best":
            return deadline_s
        if pending.simulated and self.ask_times:
            return None
        last = self._progress(pending, so_far or _Progress()).last
        places = self._places(last)
        if not places:
            return None  # there is nothing that could come too late
        upload_s = math.fsum(pending.offers[place].upload_s for place in places)
        return last.at_s + PATIENCE * max(last.room_s - upload_s, 0.0)

    def _progress(self, pending: PendingOffers, progress: _Progress) -> _Progress:
        """Return the progress after all offers that there are."""
        offers, known = pending.offers, progress.arrived
        if known and (len(offers) < known or offers[known - 1] is not progress.newest):
            progress = _Progress()  # an offer is gone with its client: begin again without it
        deadline_s = deadline_of(pending.population)
        for place in range(progress.arrived, len(offers)):
            if not progress.stopped:
                progress = self._arrive(progress, offers, place, deadline_s)
        return progress

    def _arrive(
        self, progress: _Progress, offers: Sequence[Offer], place: int, deadline_s: float
    ) -> _Progress:
        """Return the progress after one more arrival (one iteration of algorithm 1)."""
        offer, last, best = offers[place], progress.last, progress.best
        room_s = deadline_s - offer.at_s
        if room_s <= 0:
            return _Progress(place + 1, offer, last, best, stopped=True)
        if self.solver == "dp":
            solution = self._read(last, place, offer, room_s)
        elif last.upload_s <= room_s < offer.upload_s:
            # There is less room, and the new client does not fit: S is still the best.
            solution = replace(last, at_s=offer.at_s, room_s=room_s)
        else:
            solution = _solve(offers[: place + 1], offer.at_s, room_s)
        fell = solution.value < last.value
        if self.stop == "non_increase":
            fell = solution.value <= last.value
        best = solution if solution.value > best.value else best
        return _Progress(place + 1, offer, solution, best, stopped=fell and last.value > 0)

    def _read(self, last: _Solution, place: int, offer: Offer, room_s: float) -> _Solution:
        """Return the solution of the table with one arrival more."""
        room = cells_down(room_s, self.resolution_s)
        table = last.table or Table.of(room)
        table = table.with_item(place, offer.norm, cells_up(offer.upload_s, self.resolution_s))
        return _Solution(table.value(room), offer.at_s, room_s, table=table)

    def _places(self, solution: _Solution) -> tuple[int, ...]:
        """Return S."""
        if solution.table is None:
            return solution.places
        return solution.table.choose(cells_down(solution.room_s, self.resolution_s))

    def _solution_at(self, now_s: float, progress: _Progress, pending: PendingOffers) -> _Solution:
        """Return the best set whose uploads begin now and end by the deadline."""
        last, room_s = progress.last, deadline_of(pending.population) - now_s
        if now_s == last.at_s or last.table is not None:
            return replace(last, at_s=now_s, room_s=room_s)
        if room_s <= 0:
            return _Solution()
        return _solve(pending.offers[: progress.arrived], now_s, room_s)


def _verdicts(
    places: tuple[int, ...], pending: PendingOffers, found_s: float | None = None
) -> list[Verdict]:
    """Return the verdicts on all clients: first the granted ones, in order of arrival.

    Args:
        places: of the granted offers.
        pending: the offers.
        found_s: the moment from which the verdicts count, if that is not now.
    """
    if not pending.offers:
        return []
    round = pending.offers[0].round
    dated_s = found_s if places else None
    granted = {pending.offers[place].client: None for place in places}
    others = [offer.client for offer in pending.offers if offer.client not in granted]
    return [
        *(Verdict(round, client, granted=True, dated_s=dated_s) for client in granted),
        *(
            Verdict(round, client, granted=False, dated_s=dated_s)
            for client in (*others, *sorted(pending.waiting))
        ),
    ]


def _solve(offers: Sequence[Offer], now_s: float, room_s: float) -> _Solution:
    """Return the best set of these offers within `room_s` from now on."""
    order = np.argsort([offer.client for offer in offers])  # ties go to the lowest numbers
    norms = np.array([offer.norm for offer in offers])[order]
    uploads_s = np.array([offer.upload_s for offer in offers])[order]
    choice = solve_exact(norms, uploads_s, room_s)
    places = tuple(sorted(order[list(choice.items)].tolist()))
    return _Solution(choice.value, now_s, room_s, places, choice.weight)
