"""Clients in memory whose arrivals, losses and lies a test decides; each task is really trained."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from layers.logic import (
    Answer,
    ClientLedger,
    ClientLost,
    ClientState,
    Logic,
    LogicError,
    Offer,
    Question,
    RoundReport,
    Selector,
    ServerState,
    StateLost,
    Task,
    TimerFired,
    Traffic,
    Update,
    Verdict,
    answer,
    answer_question,
    offer_of,
    run_round,
)
from layers.logic.core.hook import Process
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Begin,
    Cancel,
    Command,
    Costs,
    Event,
    ReportCosts,
    SendTask,
    SetTimer,
)
from layers.logic.storage import UpdateStore
from tests.logic.quadratic import Quadratic, QuadraticEngine, layout
from tests.logic.toys import InLanes

Forge = Callable[[Update], Iterable[Event]]


def honestly(update: Update) -> Iterable[Event]:
    return [update]


@dataclass
class MemoryCarrier:
    """A `Carrier` in memory.

    Attributes:
        order: clients in the order in which they arrive; those left out arrive last, ascending.
        lost: clients that are lost when they are asked.
        silent: clients of which nothing ever comes; without anybody else the deadline passes.
        forge: what arrives in place of a client's update.
        forge_offer: likewise of its offer.
        deadline: after so many events nothing more is yielded.
        untrusted: whether the clients count as somebody else's processes.
        processes: the process of each client; without one it is simulated. What a client refuses
            there loses it, with the reason.
    """

    logic: Logic
    clients: Mapping[int, Quadratic]
    order: Sequence[int] = ()
    lost: Collection[int] = ()
    silent: Collection[int] = ()
    forge: Forge = honestly
    forge_offer: Callable[[Offer], Iterable[Event]] = lambda offer: [offer]
    forge_answer: Callable[[Answer], Iterable[Answer]] = lambda answer: [answer]
    deadline: int | None = None
    untrusted: bool = False
    processes: Mapping[int, Process] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    ledgers: dict[int, ClientLedger] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    asked: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = QuadraticEngine(self.logic.layout[-1].stop)
        self._queue: list[Task | Update] = []
        self._arrived: deque[Event] = deque()
        self._told = 0
        self._left = self.deadline
        self._offered: dict[int, Update] = {}
        self._declined: set[int] = set()
        self.timers: dict[str, float] = {}
        self.in_flight: dict[int, Task] = {}

    def open_round(self, state: ServerState) -> tuple[ServerState, Mapping[int, int]]:
        self._declined.clear()
        return state, {client: len(data) for client, data in self.clients.items()}

    def exchange(self, commands: Sequence[Command]) -> tuple[Event, float]:
        for command in commands:
            self.carry(command)
        return self._next(), 0.0

    def carry(self, command: Command) -> None:
        match command:
            case Ask(question, clients):
                self._ask(question, clients)
            case Begin(late=late):
                self._arrived.clear()
                self._left = self.deadline
                kept = {task.client for task in late}
                self._queue = [one for one in self._queue if one.client in kept]
            case SendTask(task):
                self._send(task)
            case Verdict():
                self._answer(command)
            case SetTimer(name, at_s):
                self.timers.pop(name, None)
                if at_s is not None:
                    self.timers[name] = at_s
            case Cancel(client):
                self._queue = [one for one in self._queue if one.client != client]
            case ReportCosts():
                asked, self._told = self.tasks[self._told :], len(self.tasks)
                traffic = {task.client: Traffic(down_bytes=100, up_bytes=10) for task in asked}
                self._arrived.append(Costs(0.0, traffic=traffic))

    def _ask(self, question: Question, clients: Sequence[int]) -> None:
        self.asked.append((question.name, tuple(clients)))
        for client in clients:
            answers: Iterable[Answer] = []
            if client not in self.lost:
                with self._refusals(client):
                    answers = self.forge_answer(self._answer_of(question, client))
            told = [Answered(one) for one in answers]
            self._arrived.extend(told or [ClientLost(question.round, client, "no answer")])

    @contextmanager
    def _refusals(self, client: int) -> Iterator[None]:
        """Keep why a client of a process of its own refuses what it is asked for."""
        try:
            yield
        except LogicError as error:
            if client not in self.processes:
                raise
            self.reasons[client] = str(error)

    def _answer_of(self, question: Question, client: int) -> Answer:
        ledger, data = self.ledgers.get(client, ClientLedger()), self.clients[client]
        told, within = answer_question(
            client,
            question,
            self.engine,
            data,
            self.logic,
            ledger.within,
            process=self.processes.get(client),
        )
        if within.round:
            self.ledgers[client] = replace(ledger, within=within)
        return told

    def _send(self, task: Task) -> None:
        last = task.last_accepted_round
        if last and last not in self.ledgers.get(task.client, ClientLedger()).rounds:
            self._arrived.append(StateLost(task.round, task.client))
            return
        self.tasks.append(task)
        self._queue.append(task)

    def _answer(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        update = self._offered.pop(verdict.client, None)
        if verdict.granted and update is not None:
            self._queue.append(update)
        if not verdict.granted:
            self._declined.add(verdict.client)

    def _next(self) -> Event:
        """Return what has arrived; a timer fires when nothing more comes."""
        if not self._arrived:
            if self._left == 0:
                return TimerFired("deadline")
            while self._queue and not self._arrived:
                self._arrived.extend(self._work())
        if self._arrived:
            event = self._arrived.popleft()
            if self._left is not None and isinstance(event, Offer | Update | ClientLost):
                self._left -= 1
            return event
        offers_s = self.timers.pop("offers", None)
        return TimerFired("deadline" if offers_s is None else "offers")

    def _work(self) -> Iterable[Event]:
        item = min(self._queue, key=lambda item: self._turn(item.client))
        self._queue.remove(item)
        if item.client in self.silent:
            return []
        if item.client in self.lost:
            return [ClientLost(item.round, item.client, "cable cut")]
        if item.client in self._declined:
            return []
        if isinstance(item, Update):
            return self.forge(item)
        update = None
        with self._refusals(item.client):
            update = self._train(item)
        if update is None:
            return [ClientLost(item.round, item.client, self.reasons[item.client])]
        if item.offer:
            self._offered[item.client] = update
            return self.forge_offer(offer_of(update, 0.0))
        return self.forge(update)

    def _turn(self, client: int) -> tuple[int, int]:
        place = self.order.index(client) if client in self.order else len(self.order)
        return place, client

    def _train(self, task: Task) -> Update:
        ledger = self.ledgers.get(task.client, ClientLedger()).settle(
            task.last_accepted_round, task.pass_number
        )
        data = self.clients[task.client]
        memory = ledger.within.at(task.round, task.step)
        update, after = answer(
            task,
            ledger.start,
            self.engine,
            data,
            self.logic,
            round_memory=memory,
            process=self.processes.get(task.client),
        )
        within = ledger.within.passed(task.round, task.step, memory)
        self.ledgers[task.client] = ledger.trained(after, within)
        return update

    def memory(self, client: int, state: ServerState) -> ClientState:
        """Return what the client would start its next task from."""
        ledger = self.ledgers.get(client, ClientLedger())
        return ledger.settle(state.last_accepted.get(client, 0)).settled


def alone(*clients: int) -> InLanes:
    """Return a selector of these clients, each in a lane of its own."""
    return InLanes(tuple((client,) for client in clients))


def a_logic(selector: Selector, size: int = 3, **settings) -> Logic:
    # A toy model has no scale, so that any update may be as large as it likes.
    return Logic(layout=layout(size), selector=selector, **{"max_update": None, **settings})


def a_state(logic: Logic, weights: Sequence[float] | None = None) -> ServerState:
    size = logic.layout[-1].stop
    start = np.zeros(size) if weights is None else weights
    return ServerState(0, np.array(start, np.float32), np.zeros(1, np.float32))


def run_rounds(
    rounds: int, state: ServerState, peers: MemoryCarrier, store: UpdateStore | None = None
) -> tuple[ServerState, list[RoundReport]]:
    reports = []
    for _ in range(rounds):
        state, report = run_round(state, peers, peers.logic, store)
        reports.append(report)
    return state, reports


def of_client(client: int, change: Callable[[Update], Iterable[Event]]) -> Forge:
    """Return a forge that touches this client's update and leaves the others'."""
    return lambda update: change(update) if update.client == client else [update]


def lying(client: int, /, **values: object) -> Forge:
    """Return a forge that replaces attributes of this client's update."""
    return of_client(client, lambda update: [replace(update, **values)])


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()
