"""The port of a round: it collects commands, takes events, and knows which clients can be asked."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from layers.logic.core.survey import Answer, Question
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Cancel,
    ClientLost,
    Command,
    Costs,
    Event,
    Joined,
    Left,
    ReportCosts,
    SetTimer,
    TimerFired,
    TimerName,
)
from layers.logic.round.patience import AnswerTimes, Waiting, silence

Returned = TypeVar("Returned")
Steps: TypeAlias = Generator[list[Command], tuple[Event, float], Returned]
"""The steps of a round: each hands over commands, and gets the next event and its time."""


class Port:
    """What a round knows of its clients, and says to them.

    Args:
        samples: the clients that can be asked when the round is opened, with their numbers of
            samples.
        waiting: whose turn it is, and how long the round waits for one client.
        deadline_s: seconds that answers may take; None: no limit.

    Attributes:
        samples: the clients that can be asked now, with their numbers of samples.
        waiting: as given.
        now_s: the time of the last event, in seconds.
    """

    def __init__(
        self, samples: Mapping[int, int], waiting: Waiting, deadline_s: float | None
    ) -> None:
        self._opened = self.samples = samples
        self.waiting = waiting
        self.now_s = 0.0
        self._deadline_s = deadline_s
        self._commands: list[Command] = []
        self._timers: dict[TimerName, float] = {}

    def put(self, *commands: Command) -> None:
        """Add commands, which go out with the next step."""
        self._commands += commands

    def set_timer(self, name: TimerName, at_s: float | None) -> None:
        """Set a timer, unless it is set to this moment already."""
        if self._timers.get(name) == at_s:
            return
        if at_s is None:
            del self._timers[name]
        else:
            self._timers[name] = at_s
        self.put(SetTimer(name, at_s))

    def step(self) -> Steps[Event]:
        """Hand over the commands; return the next event."""
        commands, self._commands = self._commands, []
        event, self.now_s = yield commands
        if isinstance(event, TimerFired):
            self._timers.pop(event.name, None)
        elif isinstance(event, Joined | Left):
            self._note(event)
        return event

    def costs(self) -> Steps[Costs]:
        """Return the costs since they were reported last."""
        self.put(ReportCosts())
        while not isinstance(costs := (yield from self.step()), Costs):
            pass  # somebody joined or left
        return costs

    def samples_of(self, client: int) -> int:
        """Return how many samples a client has announced last; 0: it has announced none."""
        return self.samples.get(client, 0)

    def ask(self, question: Question, clients: Collection[int]) -> Steps[Sequence[Answer]]:
        """Ask clients; return the answers that came in time, in the order of the clients."""
        missing = set(clients)
        if not missing:
            return []
        if self._deadline_s is not None:
            self.set_timer("deadline", self.now_s + self._deadline_s)
        self.put(Ask(question, tuple(sorted(missing))))
        answers: dict[int, Answer] = {}
        began_s, took_s = self.now_s, AnswerTimes()
        while missing:
            limit_s = self.waiting.patience.after(took_s, False, self._deadline_s or 0.0)
            self.set_timer("patience", began_s + limit_s if limit_s < math.inf else None)
            event = yield from self.step()
            match event:
                case Answered(answer):
                    known = answer.question, answer.number
                    if answer.client in missing and known == (question.name, question.number):
                        answers[answer.client] = answer
                    missing.discard(answer.client)
                    took_s.append(self.now_s - began_s)
                case ClientLost(client=client):
                    missing.discard(client)
                    self.waiting.lost(event, self.now_s, began_s)
                case TimerFired(name):
                    for client in sorted(missing):
                        give_up = ""
                        if name == "patience":
                            suspended_s = self.waiting.offend(client, self.now_s, began_s)
                            give_up = silence(limit_s, suspended_s)
                        self.put(Cancel(client, give_up, self._deadline_s))
                    missing.clear()
                case _:
                    pass  # `step` has noted who joined or left
        self.set_timer("deadline", None)
        self.set_timer("patience", None)
        return [answers[client] for client in sorted(answers)]

    def _note(self, event: Joined | Left) -> None:
        samples = dict(self.samples) if self.samples is self._opened else self.samples
        assert isinstance(samples, dict)
        if isinstance(event, Joined):
            samples[event.client] = event.samples
        else:
            samples.pop(event.client, None)
        self.samples = samples
