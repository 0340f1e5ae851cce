"""The interface of the logic layer to its clients: a simulation, or sockets."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from layers.logic.core.messages import Event, Task, Verdict
from layers.logic.core.plan import Plan
from layers.logic.core.report import Times, Traffic
from layers.logic.core.survey import Answer, Question


class Peers(Protocol):
    """The clients, as the server's side of a round sees them."""

    @property
    def foreign(self) -> bool:
        """Whether the server does not control the clients' processes.

        Then a client may have caused the error of a server side: the update is rejected, with the
        traceback, and the round continues. In a simulation the error ends the run.
        """

    def population(self) -> Mapping[int, int]:
        """Return the clients that can be asked now, with their numbers of samples."""

    def samples_of(self, client: int) -> int:
        """Return how many samples a client says that it has, by its last word; 0: it said nothing.

        It may have become another number since `population` was asked, if the client has been
        started again with other data.
        """

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client is known to have its hooks' memory after this round.

        A client without it is told to start with an empty memory.
        """

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Return the answers of `clients` that came within `deadline_s` seconds; None: no limit."""

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round: its clock starts at 0, and tasks for the clients of the plan will follow.

        Args:
            round: number of the round, from 1.
            plan: plan of the round.
            outstanding: a view of the tasks of which an update may still come, by client; the round
                updates it while events are handled.
            deadline_s: seconds that the round may take; None: no limit.
        """

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; each leads to one `Update` or `ClientLost`, perhaps after an `Offer`."""

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Send verdicts, also after the last event.

        A declined client sends nothing more in this round, whether it has offered or not.
        """

    def set_timer(self, at_s: float | None) -> None:
        """Set the moment at which `events` yields a `TimerFired`, unless the round ends earlier.

        There is one timer, which fires once; at the beginning of a round it is not set.

        Args:
            at_s: seconds since the round began; None: it does not fire.
        """

    def events(self) -> Generator[Event, None, None]:
        """Yield the round's events, until no task is outstanding or the deadline has passed.

        An offer has its time of arrival (`Offer.at_s`). The client's number in a message is that of
        its sender; for a client that sends another number, a `ClientLost` is yielded. Messages of
        earlier rounds are not yielded.
        """

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call, by client."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round under way began, by the clock of these clients."""

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client in the round under way, or in the last one."""
