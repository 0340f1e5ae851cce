"""Clients in memory that train and upload for as long as a test says, one upload at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from layers.logic import (
    Answer,
    ClientLost,
    Question,
    Task,
    TimerFired,
    Update,
    Verdict,
    offer_of,
)
from layers.logic.clock import ClockEvent, Devices, Fleet, Serial, VirtualClock
from layers.logic.core.messages import Training
from layers.logic.round.exchange import (
    Answered,
    Begin,
    Cancel,
    Close,
    Command,
    Costs,
    Event,
    ReportCosts,
    SetTimer,
)
from tests.logic.memory_carrier import MemoryCarrier


@dataclass(frozen=True)
class Given(Devices, Fleet):
    """Devices of these times."""

    train: Mapping[int, float]
    upload: Mapping[int, float]

    def draw(self, clients: int, seed: int) -> Fleet:
        return self

    def train_s(self, client: int, samples: int, training: Training) -> float:
        return self.train[client]

    def upload_s(self, client: int, bytes: int, round: int) -> float:
        return self.upload[client]


@dataclass
class TimedCarrier(MemoryCarrier):
    """`MemoryCarrier` by a virtual clock.

    Attributes:
        train_s: t^UC by client.
        upload_s: t^UL by client.
        norms: what clients offer, if not what they trained.
        told_train_s: t^UC that a client tells, if not its own.
        mute: clients that do not answer questions.
        unknown_uploads: whether offers say nothing of how long the upload will take.
    """

    train_s: Mapping[int, float] = field(default_factory=dict)
    upload_s: Mapping[int, float] = field(default_factory=dict)
    norms: Mapping[int, float] = field(default_factory=dict)
    told_train_s: Mapping[int, float] = field(default_factory=dict)
    mute: Sequence[int] = ()
    unknown_uploads: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock = VirtualClock(
            max(self.clients) + 1,
            devices=Given(self.train_s, self.upload_s),
            uploads=Serial(),
        )
        self._work_of: dict[int, Task | Update] = {}

    def exchange(self, commands: Sequence[Command]) -> tuple[Event, float]:
        for command in commands:
            self.carry(command)
        return self._next(), self.clock.elapsed_s

    def carry(self, command: Command) -> None:
        match command:
            case Begin(_, before_s, after_s, turns):
                self._arrived.clear()
                self.clock.begin(turns, before_s, after_s)
            case SetTimer(name, at_s):
                self.clock.set_timer(name, at_s)
            case Cancel(client):
                self.clock.cancel(client)
            case Close():
                self.clock.close()
            case ReportCosts():
                self._arrived.append(Costs(self.clock.elapsed_s, times=self.clock.times()))
            case _:
                super().carry(command)

    def _ask(self, question: Question, clients: Sequence[int]) -> None:
        if question.name != "times":
            super()._ask(question, clients)
            return
        self.asked.append((question.name, tuple(clients)))
        told_s = {**self.train_s, **self.told_train_s}
        for one in clients:
            if one in self.mute:
                self._arrived.append(ClientLost(question.round, one, "no answer"))
            else:
                times = {"train_s": told_s[one], "upload_s": self.upload_s[one]}
                self._arrived.append(Answered(Answer(one, "times", times)))

    def _send(self, task: Task) -> None:
        self.tasks.append(task)
        self._work_of[task.client] = task
        self.clock.ask(task.client, len(self.clients[task.client]), task.training, 0, task.round)

    def _answer(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.clock.decide(verdict.client, verdict.granted, verdict.dated_s)
        if verdict.granted:
            self.clock.upload(verdict.client, 0, verdict.dated_s)

    def _next(self) -> Event:
        while not self._arrived:
            happening = self.clock.next()
            if happening.kind == "timer":
                return TimerFired(happening.reason)  # type: ignore[arg-type]
            self._arrived.extend(self._happened(happening))
        return self._arrived.popleft()

    def _happened(self, happening: ClockEvent) -> Iterable[Event]:
        client = happening.client
        work = self._work_of[client]
        if client in self.lost:
            self.clock.cancel(client)
            return [ClientLost(work.round, client, "cable cut")]
        if isinstance(work, Update):
            return [work]
        self.clock.trained(client)
        self._work_of[client] = update = self._train(work)
        if not work.offer:
            self.clock.upload(client, 0)
            return []
        norm = self.norms.get(client, update.metrics["norm"])
        self._work_of[client] = update = replace(update, metrics={**update.metrics, "norm": norm})
        upload_s = 0.0 if self.unknown_uploads else self.upload_s[client]
        return [replace(offer_of(update, upload_s), at_s=happening.at_s)]
