"""FedCS (Nishio and Yonetani 2019), and the times that clients report before a round."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.core.declaration import Need
from layers.logic.core.messages import Slot
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError
from layers.logic.selectors.draws import draw_uniform
from layers.logic.selectors.uniform import cohort_size
from layers.settings import NotNegative, Share

TIMES = "times"
"""The question, a key of `layers.logic.core.survey.QUESTIONS`."""


@dataclass(frozen=True, eq=False)
class ReportedTimes:
    """The clients that reported their times, in ascending order, each with its own estimate.

    Attributes:
        clients: int64 (k,).
        train_s: float64 (k,), t^UC of training.
        upload_s: float64 (k,), t^UL of the upload alone.
    """

    clients: np.ndarray
    train_s: np.ndarray
    upload_s: np.ndarray

    @classmethod
    def of(cls, answers: Mapping[int, Slot]) -> ReportedTimes:
        """Return answers to the question; an answer that cannot be true is left out."""
        reported = [
            (client, train_s, upload_s)
            for client, answer in sorted(answers.items())
            if _number(train_s := answer.get("train_s"))
            and _number(upload_s := answer.get("upload_s"))
        ]
        clients = np.array([line[0] for line in reported], np.int64)
        times = np.array([line[1:] for line in reported], np.float64).reshape(len(reported), 2)
        able = (np.isfinite(times) & (times >= 0)).all(axis=1)
        return cls(clients[able], times[able, 0], times[able, 1])

    def trained_before(self, deadline_s: float) -> list[int]:
        """Return the clients that will have trained before the deadline."""
        clients: list[int] = self.clients[self.train_s < deadline_s].tolist()
        return clients


def _number(value: object) -> bool:
    return isinstance(value, float) or type(value) is int


def deadline_of(round: OpenRound) -> float:
    """Return the round's deadline in seconds; `Need.DEADLINE` makes sure that there is one.

    Raises:
        LogicError: there is none.
    """
    if round.deadline_s is None:
        raise LogicError("a round without deadline_s, which this selector needs")
    return round.deadline_s


@dataclass(frozen=True)
class FedCS(Selector):
    """Selects clients one by one, each time the one that adds the least time to the round
    (algorithm 3).

    Candidates say how long they will train, t_UC, and upload, t_UL. Uploads are serial, and each
    client trains while those before it upload, so a client adds t_UL + max(0, t_UC - elapsed) to
    the time that has elapsed. The client that adds the least is taken, among equals the one with
    the lowest number, until no client can end before the deadline. Clients upload in the order in
    which they were taken. The selector keeps nothing from round to round.

    The round takes T_cs + T_d(S) + elapsed + T_agg, where S are the clients that are taken: T_cs to
    select them, T_d(S) to distribute the model to them, T_agg to aggregate. With `multicast` a
    client also adds T_d(S and it) - T_d(S). In a simulation with devices this time passes; in a
    deployment real time does, and the settings say how much of the round to leave for it. A device
    that has a downlink (all but `knapsack`) downloads within its t_UC, and needs no T_d.

    Attributes:
        candidates: share of the clients that are asked for their times, drawn uniformly; at least
            one client is asked.
        select_s: T_cs, seconds.
        distribute_s: the part of T_d(S) that is the same for all S, seconds.
        multicast: whether T_d(S) includes the largest t_UL of S: the model goes to all of S at
            once, at the rate of the slowest link, and links are as fast down as up (section IV).
        aggregate_s: T_agg, seconds.
    """

    name = "fedcs"

    candidates: Share = 1.0
    select_s: NotNegative = 0.0
    distribute_s: NotNegative = 0.0
    multicast: bool = False
    aggregate_s: NotNegative = 0.0

    requires = frozenset({Need.DEADLINE, Need.SERIAL_UPLOADS})

    @property
    def _fixed_s(self) -> float:
        """The seconds of a round that are the same for all S."""
        return self.select_s + self.distribute_s + self.aggregate_s

    def check(self, logic: Parts) -> None:
        if logic.deadline_s is not None and self._fixed_s >= logic.deadline_s:
            raise LogicError(
                f"fedcs: select_s, distribute_s and aggregate_s take {self._fixed_s:g} s together, "
                f"and the round has {logic.deadline_s:g}; raise clock.deadline_s or lower them"
            )

    def run(self, round: OpenRound) -> Run[None]:
        clients = round.clients
        number = cohort_size(self.candidates, None, len(clients))
        drawn = draw_uniform(round.generator("inquire"), len(clients), number)
        candidates = sorted(clients[place] for place in drawn)
        reported = ReportedTimes.of((yield from round.ask(Question(TIMES), candidates)))
        greedy = _greedy_multicast if self.multicast else _greedy
        deadline_s = deadline_of(round) - self._fixed_s
        places = greedy(reported.train_s, reported.upload_s, deadline_s)
        round.in_turn = True
        round.before_s = self.select_s + self.distribute_s
        if self.multicast and places:
            round.before_s += float(reported.upload_s[places].max())
        round.after_s = self.aggregate_s
        for place in places:
            round.train(reported.clients[place])
        yield from round.until_all()


def _greedy(train_s: np.ndarray, upload_s: np.ndarray, deadline_s: float) -> list[int]:
    """Return the places of the clients that are taken, in that order.

    The client that adds the least is the one whose upload would end first. A client that would
    still train ends at t_UC + t_UL, and a client that has trained at elapsed + t_UL. Within each of
    the two groups the order never changes, so only the first client of each is looked at.
    """
    with np.errstate(over="ignore"):  # a client may have reported times that cannot be true
        both_s = train_s + upload_s
    end_s = both_s.tolist()
    training = np.lexsort((np.arange(train_s.size), both_s)).tolist()
    by_train = np.argsort(train_s, kind="stable").tolist()
    train, upload = train_s.tolist(), upload_s.tolist()
    trained: list[tuple[float, int]] = []  # a heap of (t_UL, place) of clients that have trained
    taken: list[int] = []
    is_taken = [False] * len(train)
    first = ready = 0
    elapsed = 0.0
    while True:
        while ready < len(by_train) and train[by_train[ready]] <= elapsed:
            place = by_train[ready]
            ready += 1
            if not is_taken[place]:
                heapq.heappush(trained, (upload[place], place))
        while first < len(training) and (
            is_taken[training[first]] or train[training[first]] <= elapsed
        ):
            first += 1
        ends = [(elapsed + upload_of, place) for upload_of, place in trained[:1]]
        ends += [(end_s[place], place) for place in training[first : first + 1]]
        if not ends or not min(ends)[0] < deadline_s:
            return taken  # the first does not fit, so no other does
        elapsed, place = min(ends)
        if trained and trained[0][1] == place:
            heapq.heappop(trained)
        is_taken[place] = True
        taken.append(place)


def _greedy_multicast(train_s: np.ndarray, upload_s: np.ndarray, deadline_s: float) -> list[int]:
    """Return the places of the clients that are taken, in that order, where T_d(S) = max t_UL.

    The client that adds the least also ends first, so if it does not fit, no other does.
    """
    adds_s = np.empty_like(train_s)
    left = np.ones(train_s.size, bool)
    taken: list[int] = []
    distribution_s = elapsed_s = 0.0
    while left.any():
        with np.errstate(over="ignore"):  # a client may have reported times that cannot be true
            np.maximum(train_s - elapsed_s, 0.0, out=adds_s)
            adds_s += upload_s + np.maximum(upload_s - distribution_s, 0.0)
        adds_s[~left] = math.inf
        place = int(adds_s.argmin())
        if not math.isfinite(adds_s[place]):
            break
        distribution_after_s = max(distribution_s, float(upload_s[place]))
        elapsed_after_s = max(elapsed_s, float(train_s[place])) + float(upload_s[place])
        if not distribution_after_s + elapsed_after_s < deadline_s:
            break
        left[place] = False
        taken.append(place)
        distribution_s, elapsed_s = distribution_after_s, elapsed_after_s
    return taken


@settings_of_parts()
def fedcs() -> Preset:
    """FedCS (Nishio and Yonetani 2019): as many clients as can upload before the round's deadline.

    Needs `clock.deadline_s`. With `logic.min_updates: 0` a round in which no client fits keeps the
    model.
    """
    return Preset(FedCS(), Mean())
