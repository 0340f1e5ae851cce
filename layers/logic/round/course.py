"""The course of one round on the server: who has still to answer, and what has come so far."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from layers.logic.core.aggregator import Contribution
from layers.logic.core.messages import (
    EMPTY,
    ClientLost,
    Offer,
    Slot,
    StateLost,
    Task,
    Training,
    Update,
    Verdict,
)
from layers.logic.core.peers import Peers, Traffic
from layers.logic.core.plan import Plan, Population
from layers.logic.core.report import ClientReport, RoundReport
from layers.logic.core.selector import SELECT, SURVEY, PendingOffers
from layers.logic.core.state import ServerState, frozen
from layers.logic.core.survey import ABOUT_MODEL, Question
from layers.logic.core.times import Times
from layers.logic.errors import LogicError, Rejected, TooFewUpdates
from layers.logic.round.logic import Logic
from layers.logic.round.validation import check_content, check_envelope, check_model, check_offer
from layers.logic.seeds import derive, generator

ENOUGH = "enough others came back first"
DECLINED = "its offer was declined"
UNHEARD = "declined before it offered"


class _Lane:
    """How far one lane has come."""

    def __init__(
        self,
        clients: tuple[int, ...],
        group: str,
        weight: float | None,
        weights: np.ndarray,
        buffers: np.ndarray,
    ) -> None:
        self.waiting = list(clients)
        self.group = group
        self.weight = weight
        self.several = len(clients) > 1
        self.start = weights
        self.weights = weights
        self.buffers = buffers
        self.delta = EMPTY
        self.updates: list[Update] = []


class Course:
    """One round. Arrivals may come in any order; they are folded in the order of the plan."""

    def __init__(self, state: ServerState, logic: Logic, peers: Peers) -> None:
        self._logic = logic
        self._round = state.round + 1
        self._peers = peers
        self._training = logic.training_of(self._round)
        population = Population(
            peers.population(),
            training=self._training,
            deadline_s=logic.deadline_s,
            over_select=logic.over_select,
        )
        state, population = _survey(state, logic, peers, population)
        self._state = state
        self._chain = logic.server_pipeline(state, len(population.clients))
        self._foreign = peers.foreign
        self._population, self._plan = _select(state, logic, peers, population)
        self._lanes = _lanes(self._plan, logic, state)
        self._enough = self._plan.enough
        self._place = {
            client: place for place, lane in enumerate(self._plan.lanes) for client in lane
        }
        self._tasks: dict[int, Task] = {}
        self._offers: dict[int, Offer] = {}
        self._norms: dict[int, float] = {}  # that were offered, whatever has become of the offer
        self._granted: set[int] = set()
        self._waiting: dict[int, None] = {}  # clients that may still offer
        self._admitted: Any = None  # what the selector made of the offers so far
        self._came_back = 0  # lanes that have come to their end with an update
        self._clients: dict[int, ClientReport] = {}
        self._strangers: list[ClientReport] = []
        self._total = logic.aggregator.init(state)
        self._folded = 0  # lanes that were folded, in the order of the plan
        self._contributions = 0

    def open(self) -> Sequence[Task]:
        """Begin the round; return the task of the first client of each lane."""
        self._peers.begin(self._round, self._plan)
        return [task for lane in self._lanes for task in self._next(lane)]

    def on_offers(self, offer: Offer) -> Sequence[Verdict]:
        """Take an offer; return the verdicts that can be given now."""
        task = self._tasks.get(offer.client)
        if not self._plan.offers or task is None or offer.round != task.round:
            return []
        if offer.client in self._granted:  # it came back after it had been granted
            return [Verdict(offer.round, offer.client, granted=True)]
        if offer.client in self._offers:
            return []
        try:
            check_offer(offer)
        except Rejected as refusal:
            self._drop(ClientReport(offer.client, "rejected", str(refusal)))
            return [Verdict(task.round, offer.client, granted=False)]
        self._offers[offer.client] = offer
        self._norms[offer.client] = offer.norm
        del self._waiting[offer.client]
        return self._decide()

    def decide(self) -> Sequence[Verdict]:
        """Return the verdicts that are due without a new offer.

        Those on offers when nobody else is waited for, and on all that is outstanding when enough
        lanes have come back.
        """
        if self._enough is not None and self._came_back >= self._enough:
            for lane in self._lanes:
                for client in lane.waiting:
                    self._clients[client] = ClientReport(client, "declined", ENOUGH)
                lane.waiting.clear()
            late = [Verdict(self._round, client, granted=False) for client in self._tasks]
            return self._settle(late, ENOUGH)
        if not self._offers or self._waiting:
            return []
        return [*self._decide(), *self._decline()]

    def receive(self, update: Update) -> Sequence[Task]:
        """Take an update through the gate; return the task of the next client in its lane."""
        task = self._tasks.get(update.client)
        if task is None:
            known = self._clients.get(update.client)
            reason = "not asked" if known is None else f"another update of a client {known.status}"
            self._strangers.append(
                ClientReport(update.client, "rejected", f"{reason} in this round")
            )
            return []
        lane = self._lanes[self._place[update.client]]
        try:
            check_envelope(update, task)
            if self._plan.offers and update.client not in self._granted:
                raise Rejected("an update whose offer was not granted")
            decoded = self._chain.receive(update)
            check_content(decoded, lane.weights, lane.buffers)
            self._logic.aggregator.inspect(decoded)
        except Rejected as refusal:
            return self._drop(ClientReport(update.client, "rejected", str(refusal)))
        except Exception as error:
            if not self._foreign:
                raise
            reason = f"the server's half of a hook failed on it: {type(error).__name__}: {error}"
            trace = traceback.format_exc()
            return self._drop(ClientReport(update.client, "rejected", reason, trace))
        del self._tasks[update.client]
        self._clients[update.client] = ClientReport(
            update.client,
            "accepted",
            samples=update.samples,
            steps=update.steps,
            metrics={**decoded.metrics, **self._offered(update.client)},
        )
        lane.buffers = decoded.buffers
        if lane.several:
            lane.weights = frozen(lane.weights + decoded.delta)
            decoded = replace(decoded, delta=EMPTY)
        else:
            lane.delta = decoded.delta
        lane.updates.append(decoded)
        return self._advance(lane)

    def miss(self, lost: ClientLost) -> Sequence[Task]:
        """Note that nothing will come from a client; return the task of the next in its lane."""
        if lost.client not in self._tasks:
            return []
        status: Literal["rejected", "lost"] = "rejected" if lost.rejected else "lost"
        told = self._offered(lost.client)
        report = ClientReport(lost.client, status, lost.reason, lost.traceback, metrics=told)
        return self._drop(report)

    def renew(self, lost_state: StateLost) -> Sequence[Task]:
        """Return a task to begin anew with, for a client that lost its memory."""
        task = self._tasks.get(lost_state.client)
        if task is None or lost_state.round != task.round or not task.last_accepted_round:
            return []
        self._tasks[lost_state.client] = task = replace(task, last_accepted_round=0)
        return [self._chain.send(task)]

    def close(self) -> Sequence[Verdict]:
        """End what is still open when nothing more will come; return the verdicts that are due."""
        verdicts = self._decline()
        for lane in self._lanes:
            for client in lane.waiting:
                reason = "not reached: the round ended before the client ahead of it in its lane"
                self._clients[client] = ClientReport(client, "lost", reason)
            lane.waiting.clear()
        for client in list(self._tasks):
            self.miss(ClientLost(self._round, client, "no answer before the round ended"))
        return verdicts

    def conclude(self) -> tuple[ServerState, RoundReport]:
        """Return the next state and the round's report; called after `close`.

        Raises:
            TooFewUpdates: fewer updates counted than the experiment asks for.
        """
        report = self._report(self._peers.traffic(), self._peers.times())
        counted = report.of("accepted")
        if len(counted) < self._logic.min_updates:
            error = TooFewUpdates(len(counted), self._logic.min_updates, self._round)
            error.report = report
            raise error
        state = self._state
        if self._contributions:
            state = self._logic.aggregator.finish(self._total, state)
        state = self._chain.conclude(state)
        check_model(state, self._logic)
        learned = self._logic.selector.on_round_end(state.memory.get(SELECT, {}), report)
        memory = {**state.memory, **self._chain.memory, SELECT: dict(learned)}
        state = ServerState(
            round=self._round,
            weights=frozen(state.weights),
            buffers=frozen(state.buffers),
            memory={key: kept for key, kept in memory.items() if kept},
            last_accepted={**state.last_accepted, **dict.fromkeys(counted, self._round)},
        )
        return state, report

    def _next(self, lane: _Lane) -> list[Task]:
        """Return the task of the next client in a lane, if there is one."""
        if not lane.waiting:
            return []
        client = lane.waiting.pop(0)
        task = Task(
            round=self._round,
            client=client,
            seed=derive(self._logic.seed, "train", self._round, client),
            training=self._training,
            weights=lane.weights,
            buffers=lane.buffers,
            last_accepted_round=self._last_accepted(client),
            offer=self._plan.offers,
        )
        self._tasks[client] = task
        if self._plan.offers:
            self._waiting[client] = None
        return [self._chain.send(task)]

    def _last_accepted(self, client: int) -> int:
        """Return the last round of a client that counted, if it still remembers what was then."""
        counted = self._state.last_accepted.get(client, 0)
        return counted if counted and self._peers.remembers(client, counted) else 0

    def _offered(self, client: int) -> dict[str, float]:
        """Return the norm that a client offered, if it did: what selection went by."""
        return {"norm": self._norms[client]} if client in self._norms else {}

    def _drop(self, report: ClientReport) -> list[Task]:
        """Note why a client's update does not count, and go on with its lane."""
        del self._tasks[report.client]
        self._offers.pop(report.client, None)
        self._waiting.pop(report.client, None)
        self._clients[report.client] = report
        return self._advance(self._lanes[self._place[report.client]])

    def _advance(self, lane: _Lane) -> list[Task]:
        """Go on with a lane; fold every lane that has come to its end, in the order of the plan."""
        tasks = self._next(lane)
        if not tasks and lane.updates:
            self._came_back += 1
        while self._folded < len(self._lanes) and self._ended(self._plan.lanes[self._folded]):
            self._fold(self._folded, self._lanes[self._folded])
            self._folded += 1
        return tasks

    def _ended(self, clients: tuple[int, ...]) -> bool:
        return all(client in self._clients for client in clients)

    def _fold(self, place: int, lane: _Lane) -> None:
        if not lane.updates:
            return
        for update in lane.updates:
            self._chain.on_accepted(update)
        contribution = Contribution(
            lane=place,
            samples=sum(update.samples for update in lane.updates),
            delta=lane.weights - lane.start if lane.several else lane.delta,
            buffers=lane.buffers,
            updates=tuple(lane.updates),
            training=self._training,
            group=lane.group,
            weight=lane.weight,
        )
        self._total = self._logic.aggregator.add(self._total, contribution)
        self._contributions += 1
        lane.delta, lane.weights, lane.buffers, lane.updates = EMPTY, EMPTY, EMPTY, []

    def _decide(self) -> Sequence[Verdict]:
        pending = PendingOffers(
            list(self._offers.values()),
            self._waiting.keys(),
            self._peers.elapsed_s,
            self._population,
            self._state.memory.get(SELECT, {}),
        )
        verdicts, self._admitted = self._logic.selector.on_offers(pending, self._admitted)
        return self._settle(verdicts)

    def _decline(self) -> Sequence[Verdict]:
        """Decline every offer that has no verdict yet."""
        open_offers = self._offers.values()
        return self._settle([Verdict(o.round, o.client, granted=False) for o in open_offers])

    def _settle(self, verdicts: Sequence[Verdict], reason: str = "") -> list[Verdict]:
        """Forget the offers that have a verdict; a declined client is out of the round."""
        given = []
        for verdict in verdicts:
            client, offered = verdict.client, self._offers.pop(verdict.client, None)
            if offered is None and (verdict.granted or client not in self._tasks):
                continue
            given.append(verdict)
            if verdict.granted:
                self._granted.add(client)
            elif offered is None:
                self._drop(ClientReport(client, "declined", reason or UNHEARD))
            else:
                told = {**offered.metrics, "norm": offered.norm}
                report = ClientReport(client, "declined", reason or DECLINED, metrics=told)
                self._drop(replace(report, samples=offered.samples))
        return given

    def _report(self, traffic: Mapping[int, Traffic], times: Mapping[int, Times]) -> RoundReport:
        planned = [
            replace(
                self._clients[client],
                traffic=traffic.get(client, Traffic()),
                times=times.get(client),
            )
            for client in self._plan.clients
        ]
        return RoundReport(
            round=self._round,
            learning_rate=self._training.learning_rate,
            selected=len(self._plan.clients),
            clients=(*planned, *self._strangers),
            traffic=sum(traffic.values(), Traffic()),
            took_s=self._peers.elapsed_s,
        )


def _lanes(plan: Plan, logic: Logic, state: ServerState) -> list[_Lane]:
    groups = plan.groups or ("",) * len(plan.lanes)
    weights = plan.weights or (None,) * len(plan.lanes)
    starts = {group: logic.aggregator.start(state, group) for group in groups}
    return [
        _Lane(lane, group, weight, *starts[group])
        for lane, group, weight in zip(plan.lanes, groups, weights, strict=True)
    ]


def _select(
    state: ServerState, logic: Logic, peers: Peers, population: Population
) -> tuple[Population, Plan]:
    """Return the selector's plan for the round after `state`, and what it was made from."""
    aggregator = logic.aggregator
    memory, round = state.memory.get(SELECT, {}), state.round + 1
    inquiries = logic.selector.inquire(
        population, memory, round, generator(logic.seed, "inquire", round)
    )
    if inquiries:
        answers = {question: dict(given) for question, given in population.answers.items()}
        for question, clients in inquiries:
            given = answers.setdefault(question.name, {})
            given.update(_asked(question, clients, state, population.training, peers))
        # Who left meanwhile cannot be selected any more, whatever it answered.
        population = replace(population, samples=peers.population())
        there = set(population.clients)
        for name in {question.name for question, _ in inquiries}:
            answers[name] = {one: told for one, told in answers[name].items() if one in there}
        population = replace(population, answers=answers)
    rng = generator(logic.seed, "select", round)
    plan = logic.selector.select(population, memory, round, rng)
    unknown = sorted(set(plan.clients) - set(population.clients))
    if unknown:
        raise LogicError(
            f"{type(logic.selector).__name__} selected clients {unknown} in round {round}, which "
            "are not there or have no samples; select from population.clients"
        )
    if aggregator.each_client and any(len(lane) > 1 for lane in plan.lanes):
        raise LogicError(
            f"{type(aggregator).__name__} looks at each client's own update, and "
            f"{type(logic.selector).__name__} made lanes of several clients, of which only the sum "
            "is known; use another aggregator, such as mean, or single_lanes()"
        )
    return population, plan


def _survey(
    state: ServerState, logic: Logic, peers: Peers, population: Population
) -> tuple[ServerState, Population]:
    """Ask the clients that have not answered yet, and keep their answers."""
    questions = logic.selector.surveys()
    if not questions:
        return state, population
    answers = {name: dict(given) for name, given in state.memory.get(SURVEY, {}).items()}
    news = False
    for question in questions:
        given = answers.setdefault(question.name, {})
        asked = [client for client in population.clients if client not in given]
        if asked:
            replies = _asked(question, asked, state, population.training, peers)
            news = news or bool(replies)
            given.update(replies)
    state = replace(state, memory={**state.memory, SURVEY: answers})
    if news:
        state = logic.selector.on_survey(state, replace(population, answers=answers))
        answers = state.memory[SURVEY]
    # Who left meanwhile cannot be selected any more.
    return state, replace(population, samples=peers.population(), answers=answers)


def _asked(
    question: Question,
    clients: Sequence[int],
    state: ServerState,
    training: Training,
    peers: Peers,
) -> dict[int, Slot]:
    """Return what those of `clients` that answered did answer."""
    if not clients:
        return {}
    full = replace(
        question,
        round=state.round + 1,
        training=training,
        model_bytes=state.weights.nbytes + state.buffers.nbytes,
    )
    if question.name in ABOUT_MODEL:
        full = replace(full, weights=state.weights, buffers=state.buffers)
    asked = set(clients)
    return {
        reply.client: reply.values
        for reply in peers.ask(full, sorted(asked))
        if reply.question == question.name and reply.client in asked
    }
