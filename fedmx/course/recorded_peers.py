"""The clients of one deployed round, with notes on everything that they tell the server."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from fedmx.course.course_event import CourseEvent, UpdateArrived
from fedmx.course.course_round import Asked, CourseRound, TaskSent
from fedmx.course.hashes import message_hash
from fedmx.course.observed_peers import ObservedPeers
from fedmx.protocol.messages import CODEC
from layers.logic import (
    Answer,
    Peers,
    Question,
    RoundReport,
    ServerState,
    Task,
    TimerFired,
    Traffic,
    Update,
    Verdict,
)
from layers.logic.core.messages import Event
from layers.logic.core.state import EXCLUDED
from layers.logic.round.collection import EARLIER_PASSES

MEASURED = frozenset({"times"})
"""The questions whose answers are measured, so that they cannot be made again."""


def observed(peers: Peers, state: ServerState) -> ObservedPeers:
    """Return the peers of the round after `state`; its course is noted if they are deployed."""
    return RecordedPeers(peers, state) if peers.foreign else ObservedPeers(peers)


class RecordedPeers(ObservedPeers):
    """The deployed clients of one round; all is passed on, and noted.

    The time of a round is read once for each event, so that the record has one time for each.

    Args:
        peers: the clients.
        state: the state before the round.
    """

    def __init__(self, peers: Peers, state: ServerState) -> None:
        super().__init__(peers)
        self._state = state
        self._populations: list[Mapping[int, int]] = []
        self._asked: list[Asked] = []
        self._tasks: list[TaskSent] = []
        self._events: list[CourseEvent] = []
        self._expected: dict[int, int] = {}  # by client, the place of its last expected update
        self._verdicts: list[tuple[int, bool]] = []
        self._traffic: Mapping[int, Traffic] = {}
        self._at_s: float | None = None  # the time of the event that is handled

    def course(
        self,
        report: RoundReport,
        stepped_back: Sequence[Mapping[str, Any]],
        overhead: Mapping[str, Any],
    ) -> CourseRound:
        """Return the course of the round, which has been concluded.

        Args:
            report: its report.
            stepped_back: the records of the steps back after which it was run.
            overhead: its cost besides messages.
        """
        for one in report.clients:
            # Later reports of a client are of what nobody asked for.
            place = self._expected.pop(one.client, None)
            if one.status == "rejected" and place is not None:
                kept = self._events[place]
                assert isinstance(kept.event, UpdateArrived)
                reason = one.reason.removesuffix(EARLIER_PASSES)
                self._events[place] = replace(kept, event=replace(kept.event, rejected=reason))
        return CourseRound(
            round=report.round,
            populations=tuple(self._populations),
            tasks=tuple(self._tasks),
            events=tuple(self._events),
            asked=tuple(self._asked),
            verdicts=tuple(self._verdicts),
            traffic=self._traffic,
            times=self.times(),
            took_s=report.took_s,
            overhead=overhead,
            excluded=self._state.memory.get(EXCLUDED, {}),
            stepped_back=tuple(stepped_back),
        )

    # --- for the logic layer: `Peers` --------------------------------------------------------

    def population(self) -> Mapping[int, int]:
        """Return the clients that can be asked now, with their numbers of samples."""
        self._populations.append(super().population())
        return self._populations[-1]

    def samples_of(self, client: int) -> int:
        """Return how many samples a client says that it has."""
        samples = super().samples_of(client)
        if samples != self._populations[-1].get(client, 0):
            self._events[-1] = replace(self._events[-1], samples=samples)
        return samples

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Return the answers of clients."""
        answers = super().ask(question, clients, deadline_s)
        answered = {one.client for one in answers}
        missing = tuple(client for client in clients if client not in answered)
        if question.name in MEASURED:
            encoded = {one.client: bytes(CODEC.encode(one)) for one in answers}
            self._asked.append(Asked(question.name, answers=encoded, unanswered=missing))
        else:
            hashes = {one.client: message_hash(one) for one in answers}
            self._asked.append(Asked(question.name, hashes, unanswered=missing))
        return answers

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks."""
        self._tasks += [
            TaskSent(task.client, task.last_accepted_round, task.pass_number) for task in tasks
        ]
        super().send(tasks)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Send verdicts."""
        self._verdicts += [(verdict.client, verdict.granted) for verdict in verdicts]
        super().answer(verdicts)

    def events(self) -> Generator[Event, None, None]:
        """Yield the round's events, each after it was noted."""
        with closing(super().events()) as events:
            try:
                for event in events:
                    yield event
                    del event  # frees a folded update before the next one arrives
                    self._at_s = None
            finally:
                self._at_s = None

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call, by client."""
        self._traffic = super().traffic()
        return self._traffic

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began; while an event is handled, those when that began."""
        return super().elapsed_s if self._at_s is None else self._at_s

    def _note(self, event: Event) -> str:
        sha256 = super()._note(event)
        self._at_s = super().elapsed_s
        if isinstance(event, Update):
            if sha256:
                self._expected[event.client] = len(self._events)
            arrived = UpdateArrived(event.round, event.client, sha256)
            self._events.append(CourseEvent(arrived, self._at_s))
        else:
            self._events.append(CourseEvent(event, self._at_s))
            if not isinstance(event, TimerFired):  # what is rejected from here on is not its update
                self._expected.pop(event.client, None)
        return sha256
