"""The clients of a round, and what is noted of their messages as they pass."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from fedmx.course.course_round import CourseRound
from fedmx.course.hashes import message_hash
from layers.logic import (
    Answer,
    Peers,
    Plan,
    Question,
    RoundReport,
    Task,
    Times,
    Traffic,
    Update,
    Verdict,
)
from layers.logic.core.messages import Event


class ObservedPeers:
    """Passes on everything between a round and its clients, and hashes each expected update.

    Args:
        peers: the clients.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._updates: dict[int, dict[int, str]] = {}  # by client, then by pass
        self._outstanding: Mapping[int, Task] = {}  # a view of the round's tasks

    def hashes_of(self, client: int) -> tuple[str, ...]:
        """Return the hashes of a client's updates in this round, one for each pass."""
        return tuple(self._updates.get(client, {}).values())

    def course(
        self,
        report: RoundReport,
        stepped_back: Sequence[Mapping[str, Any]],
        overhead: Mapping[str, Any],
    ) -> CourseRound | None:
        """Return the course of the concluded round; None: it was not noted."""
        return None

    @property
    def foreign(self) -> bool:
        """As the clients have it."""
        return self._peers.foreign

    def population(self) -> Mapping[int, int]:
        """Return the clients that can be asked now, with their numbers of samples."""
        return self._peers.population()

    def samples_of(self, client: int) -> int:
        """Return how many samples a client says that it has."""
        return self._peers.samples_of(client)

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client has its hooks' memory after this round."""
        return self._peers.remembers(client, round)

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Return the answers of clients."""
        return self._peers.ask(question, clients, deadline_s)

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round."""
        self._updates.clear()
        self._outstanding = outstanding
        self._peers.begin(round, plan, outstanding, deadline_s)

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks."""
        self._peers.send(tasks)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Send verdicts."""
        self._peers.answer(verdicts)

    def set_timer(self, at_s: float | None) -> None:
        """Set the timer of the round."""
        self._peers.set_timer(at_s)

    def events(self) -> Generator[Event, None, None]:
        """Yield the round's events, each update after it was hashed."""
        with closing(self._peers.events()) as events:
            for event in events:
                self._note(event)
                yield event
                del event  # frees a folded update before the next one arrives

    def _note(self, event: Event) -> str:
        """Note an event before the round handles it; return an expected update's hash."""
        if not isinstance(event, Update) or event.client not in self._outstanding:
            return ""  # an update that no task asks for does not count
        sha256 = message_hash(event)
        self._updates.setdefault(event.client, {})[event.pass_number] = sha256
        return sha256

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call, by client."""
        return self._peers.traffic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, by the clock of these clients."""
        return self._peers.elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client of the round."""
        return self._peers.times()
