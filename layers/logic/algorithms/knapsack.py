"""OfflineKP-FL and OnlineKP-FL: trained clients offer the norms of their updates for upload."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedcs import TIMES, ReportedTimes, deadline_of
from layers.logic.core.declaration import Need
from layers.logic.core.messages import Offer
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError
from layers.logic.numeric.knapsack import Table, cells_down, cells_up, solve_exact
from layers.settings import Positive

if TYPE_CHECKING:
    from layers.logic.core.report import ClientReport, RoundReport


CELLS = 100_000  # of a table; more would cost seconds and gigabytes
PATIENCE = 0.9  # share of the time that the best set can wait, a reserve for unknown delays


@dataclass(frozen=True, eq=False)
class _Solution:
    """The solution of the knapsack after one more arrival.

    Attributes:
        value: V.
        at_s: when the last of its clients had trained.
        room_s: from then to the deadline.
        places: S, as places among the offers; with a table, they are read when needed.
        upload_s: the upload time of S; 0 with a table.
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
    """The state of a round's offers.

    Attributes:
        arrived: the number of processed offers.
        last: the solution after it.
        best: the first solution with the highest V.
        stopped: whether V has fallen, so that the round is decided.
    """

    arrived: int = 0
    last: _Solution = _Solution()
    best: _Solution = _Solution()
    stopped: bool = False


class _AllTrain(Selector):
    """All clients train that will have trained in time, and offer their updates.

    Attributes:
        ask_times: whether clients say before the round how long they will train and upload. Then
            clients that will not have trained by the deadline, or do not answer, are left out.
    """

    ask_times: bool

    requires = frozenset({Need.DEADLINE, Need.SERIAL_UPLOADS, Need.TOLD})
    most_clients = 10_000
    why_limited = "every client trains in every round"

    def _train(self, round: OpenRound) -> Run[None]:
        """Let all clients train that will have trained in time, or all if nobody is asked."""
        clients: Sequence[int] = round.clients
        if self.ask_times:
            answers = yield from round.ask(Question(TIMES))
            clients = ReportedTimes.of(answers).trained_before(deadline_of(round))
        for client in sorted(clients):
            round.train(client, offer=True)


@dataclass(frozen=True)
class OfflineKP(_AllTrain):
    """OfflineKP-FL, algorithm 1: solves a knapsack again whenever a client has trained.

    All clients train and offer ||delta_k||. S is the subset of these clients that maximises sum
    ||delta_k|| subject to sum t_UL <= T_round - max t_UC: uploads are serial and begin when the
    last client has trained. One more client is one more choice, but costs time. When the value V
    falls, the best S so far is granted, and all other clients are declined, also those that still
    train. While no offer fits, and until V falls, the round waits for the clients that have not
    offered. The selector keeps nothing from round to round. It works with at most 10,000 clients.

    A client that never offers does not cost the round:

    - Where the verdict can be dated back (``output`` is ``"best"``, in a simulation), the round
      waits until its deadline, and the best S is granted from the moment when it was found. So the
      wait changes no set and no time.
    - Elsewhere the round waits for nine tenths of the time that the last S can wait and still be
      uploaded before the deadline. V would fall at the end of that time. A simulation whose clients
      reported their times does not need this: all of them come, or are known to be lost.

    Attributes:
        stop: V has fallen when it is below the previous V (``"strict"``), or not above it
            (``"non_increase"``, as the algorithm is printed).
        output: in a simulation, ``"best"`` grants the best S, from the moment when it was found;
            ``"last"`` grants the S that was solved last. In a deployment, where no upload can begin
            in the past, both grant the best of the sets that can be uploaded from now on.
        solver: ``"exact"``, or ``"dp"``, a table with weights rounded up to `resolution_s`.
        resolution_s: the resolution of the table, in seconds.
    """

    name = "offline-kp"

    stop: Literal["strict", "non_increase"] = "strict"
    output: Literal["best", "last"] = "best"
    solver: Literal["exact", "dp"] = "exact"
    resolution_s: Positive = 1.0
    ask_times: bool = True

    def check(self, logic: Parts) -> None:
        cells = (logic.deadline_s or 0.0) / self.resolution_s
        if self.solver == "dp" and cells > CELLS:
            raise LogicError(
                f"offline-kp with solver dp would need a table of {cells:.0f} cells, {CELLS} being "
                f"the most; set resolution_s to {(logic.deadline_s or 0.0) / CELLS:g} or more"
            )

    def run(self, round: OpenRound) -> Run[None]:
        yield from self._train(round)
        offers: list[Offer] = []  # without those that are gone with their client
        progress, until_s, event = _Progress(), None, None
        decided = not round.outstanding
        while not decided:  # C^n grows by the next client that has trained
            event = yield from round.next(until_s)
            offers += [event] if isinstance(event, Offer) else []
            if len(offers) != len(round.offers):
                offers, progress = list(round.offers.values()), _Progress()  # begin again
            progress = self._progress(offers, progress, deadline_of(round))
            fell = isinstance(event, Offer) and progress.stopped  # V(n) < V(n - 1)
            decided = fell or event is None or not round.offers_due
            until_s = self._until_s(round, offers, progress.last)
        if round.simulated and self.output == "best":
            self._answer(round, offers, progress.best, progress.best.at_s)
        elif offers:
            now_s = offers[-1].at_s
            if not isinstance(event, Offer):  # the round is decided without one
                now_s = max(now_s, round.now_s)
            self._answer(round, offers, self._solution_at(now_s, offers, progress, round))
        yield from round.until_all()

    def _until_s(self, round: OpenRound, offers: Sequence[Offer], last: _Solution) -> float | None:
        """Return the moment at which the round is decided without those that have not offered."""
        if not offers:
            return None
        if round.simulated and self.output == "best":
            return deadline_of(round)
        if round.simulated and self.ask_times:
            return None
        places = self._places(last)
        if not places:
            return None  # no offer could come too late
        upload_s = math.fsum(offers[place].upload_s for place in places)
        return last.at_s + PATIENCE * max(last.room_s - upload_s, 0.0)

    def _progress(
        self, offers: Sequence[Offer], progress: _Progress, deadline_s: float
    ) -> _Progress:
        """Return the progress after all offers."""
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
            return _Progress(place + 1, last, best, stopped=True)
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
        return _Progress(place + 1, solution, best, stopped=fell and last.value > 0)

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

    def _solution_at(
        self, now_s: float, offers: Sequence[Offer], progress: _Progress, round: OpenRound
    ) -> _Solution:
        """Return the best set whose uploads begin now and end by the deadline."""
        last, room_s = progress.last, deadline_of(round) - now_s
        if now_s == last.at_s or last.table is not None:
            return replace(last, at_s=now_s, room_s=room_s)
        if room_s <= 0:
            return _Solution()
        return _solve(offers[: progress.arrived], now_s, room_s)

    def _answer(
        self,
        round: OpenRound,
        offers: Sequence[Offer],
        solution: _Solution,
        found_s: float | None = None,
    ) -> None:
        """Grant S, in order of arrival; decline all others, those that still train at last.

        Args:
            round: the round.
            offers: the offers.
            solution: has S.
            found_s: the moment from which the verdicts count, if that is not now.
        """
        places = self._places(solution)
        dated_s = found_s if places else None
        for place in places:
            round.grant(offers[place], dated_s)
        for client in [*round.offers, *sorted(round.offers_due)] if offers else ():
            round.decline(client, dated_s)


def _solve(offers: Sequence[Offer], now_s: float, room_s: float) -> _Solution:
    """Return the best set of these offers within `room_s` from now on."""
    order = np.argsort([offer.client for offer in offers])  # ties go to the lowest numbers
    norms = np.array([offer.norm for offer in offers])[order]
    uploads_s = np.array([offer.upload_s for offer in offers])[order]
    choice = solve_exact(norms, uploads_s, room_s)
    places = tuple(sorted(order[list(choice.items)].tolist()))
    return _Solution(choice.value, now_s, room_s, places, choice.weight)


LARGEST, LOWEST, HIGHEST = "largest", "L0", "U"


@dataclass(frozen=True)
class OnlineKP(_AllTrain):
    """OnlineKP-FL, algorithm 2: the threshold of an online knapsack, on norm by seconds.

    All clients train and offer ||delta_k||, by ascending t_UC. E is the used time, and M is the
    largest norm that was offered in the last round:

        z = E / T_round
        weight = t_UC - t_UC of the client before + t_UL
        L = L0 ||delta_k|| / M (L0 while there is no M), U at the most
        psi(z) = L up to z = 1 / (1 + ln(U / L)), then (U e / L)^z L / e, and U from z = 1

    It works with at most 10,000 clients.

    A client is granted if ||delta_k|| / weight >= psi(z) and max(E, t_UC) + t_UL <= T_round. Then E
    becomes max(E, t_UC), plus t_UL if the client is granted. An update of zero is declined.

    The selector keeps M from round to round, and L0 and U if it had to find them: the first round
    grants every client that fits, and the lowest and the highest ||delta_k|| / t_UL of all clients
    that offered become L0 and U. In a deployment whose clients do not know t_UL yet, these are of
    the uploads that arrived.

    Attributes:
        L0: the lowest value of a second, in norm per second, above 0; None: the first round finds
            it. If it is too high for the model's norms, no client is granted; 0.015 suits norms of
            order 1 and uploads of 100 s.
        U: the highest value of a second, L0 or more; None if L0 is None.
        value: the value of a client: its norm (``"raw"``, as in algorithm 2), or its norm divided
            by M, with L = L0 (``"normalised"``, as in section 2.3.2). In the first round, without
            M, both are the norm with L = L0.
    """

    name = "online-kp"

    L0: float | None = None
    U: float | None = None
    value: Literal["raw", "normalised"] = "raw"
    ask_times: bool = True

    def __post_init__(self) -> None:
        if (self.L0 is None) != (self.U is None):
            raise LogicError(f"L0 and U are given together or not at all: {self.L0} and {self.U}")
        if self.L0 is not None and self.U is not None and not 0 < self.L0 <= self.U < math.inf:
            raise LogicError(
                f"L0 must be above 0, and U finite and not below it, not {self.L0} and {self.U}"
            )

    def run(self, round: OpenRound) -> Run[None]:
        yield from self._train(round)
        elapsed_s = trained_s = 0.0  # E, and t_UC of the client before
        while round.outstanding:
            offer = yield from round.next()
            if not isinstance(offer, Offer):
                continue
            ready_s = max(elapsed_s, offer.at_s)  # by ascending t_UC
            weight_s = offer.at_s - trained_s + offer.upload_s  # weight
            fits = offer.norm > 0 and ready_s + offer.upload_s <= deadline_of(round)
            if fits and self._is_worth_it(offer.norm, weight_s, elapsed_s, round):  # >= psi(z)
                round.grant(offer)
                elapsed_s = ready_s + offer.upload_s  # E = max(E, t_UC) + t_UL
            else:
                round.decline(offer)
                elapsed_s = ready_s  # E = max(E, t_UC)
            trained_s = offer.at_s

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Keep the largest norm that was offered, and find L0 and U if they are not known."""
        clients = [client for client in report.clients if client.status != "rejected"]
        norms = [client.offer.norm for client in clients if client.offer is not None]
        if not norms:
            return memory
        learned = {**memory, LARGEST: max(norms)}
        if self.L0 is None and LOWEST not in memory:
            worths = [worth for worth in map(_worth_of, clients) if worth is not None]
            if worths:
                unit = learned[LARGEST] if self.value == "normalised" else 1.0
                learned |= {LOWEST: min(worths) / unit, HIGHEST: max(worths) / unit}
        return learned

    def _is_worth_it(
        self, norm: float, weight_s: float, elapsed_s: float, round: OpenRound
    ) -> bool:
        """Return whether an update is worth its time."""
        lowest, highest = round.memory.get(LOWEST, self.L0), round.memory.get(HIGHEST, self.U)
        if lowest is None or highest is None:  # the first round, which finds them
            return True
        largest, value = round.memory.get(LARGEST, 0.0), norm
        if largest > 0 and self.value == "raw":
            lowest *= norm / largest
        elif largest > 0:
            value = norm / largest
        if weight_s <= 0:  # it takes no time
            return True
        return value / weight_s >= threshold(elapsed_s / deadline_of(round), lowest, highest)


def threshold(z: float, lowest: float, highest: float) -> float:
    """Return psi(z), the lowest value of a second at which a client is granted.

    Args:
        z: share of the round's time that is taken, 0 or more.
        lowest: L; if it is above `highest`, it counts as `highest`.
        highest: U.
    """
    if z >= 1:
        return highest
    lowest = min(lowest, highest)
    if lowest <= 0:  # by underflow, where a norm is almost 0
        return 0.0
    growth = 1 + math.log(highest) - math.log(lowest)  # of ln psi, from z = 0 to 1
    if z <= 1 / growth:
        return lowest
    return math.exp(z * growth + math.log(lowest) - 1)


def _worth_of(client: ClientReport) -> float | None:
    """Return a client's norm by second of upload; None if the norm is 0 or the time not known."""
    offer, times = client.offer, client.times
    if offer is None or offer.norm <= 0:
        return None
    upload_s = offer.upload_s
    if upload_s <= 0 and client.status == "accepted" and times is not None:
        upload_s = (times.ended_s or 0.0) - (times.sending_s or 0.0)
    worth = offer.norm / upload_s if upload_s > 0 else math.inf
    return worth if 0 < worth < math.inf else None


@settings_of_parts()
def offline_kp() -> Preset:
    """OfflineKP-FL: all clients train, and a knapsack selects the updates that are uploaded.

    Needs `clock.deadline_s`. With `logic.min_updates: 0` a round in which no client fits keeps the
    model.
    """
    return Preset(OfflineKP(), Mean())


@settings_of_parts()
def online_kp() -> Preset:
    """OnlineKP-FL: all clients train; an update is granted at once if its value is high enough.

    Needs `clock.deadline_s`. With `logic.min_updates: 0` a round in which no update is taken keeps
    the model.
    """
    return Preset(OnlineKP(), Mean())
