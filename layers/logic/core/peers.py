"""What the logic layer asks of whatever carries tasks to clients: a simulation or sockets."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from layers.logic.core.messages import Event, Task, Verdict
from layers.logic.core.plan import Plan
from layers.logic.core.report import Times, Traffic
from layers.logic.core.survey import Answer, Question


class Peers(Protocol):
    """The clients, as the server's half of a round sees them."""

    @property
    def foreign(self) -> bool:
        """Whether clients are somebody else's processes.

        What a server half stumbles over may then be a client's doing: the update is refused, with
        the traceback, and the round goes on. In a simulation the error comes out.
        """

    def population(self) -> Mapping[int, int]:
        """Return the clients that can be asked now, with their numbers of samples."""

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client is known to still have what its hooks kept after this round.

        A client that does not have it is told to begin anew.
        """

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Return the answers of those of `clients` that answered within `deadline_s`, or ever."""

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round: the clock is at 0, and tasks for the clients of this plan will follow.

        Args:
            round: from 1.
            plan: of the round.
            outstanding: a view of the tasks of which an update may still come, by client; the round
                keeps it, and it changes while events are handled.
            deadline_s: how long the round may take; None: as long as its slowest client.
        """

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; each brings one `Update` or `ClientLost`, an `Offer` perhaps before it."""

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Answer offers, also after the last event.

        A client that is declined brings nothing more in this round, whether it offered or not.
        """

    def set_timer(self, at_s: float | None) -> None:
        """Set the moment at which `events` yields a `TimerFired`, unless the round is over by then.

        There is one timer, which fires once; a round begins without.

        Args:
            at_s: seconds since the round began; None: it does not fire.
        """

    def events(self) -> Generator[Event, None, None]:
        """Yield what arrives, until no task is outstanding or the round's deadline has passed.

        An offer comes with the moment of its arrival (`Offer.at_s`).

        A message has the number of the client that really sent it; a client that lied about it is
        `ClientLost`. Messages of earlier rounds are not yielded.
        """

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes by client since the last call."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round under way began, by the clock of these clients."""

    def times(self) -> Mapping[int, Times]:
        """Return when the clients of the round under way, or just over, did what."""
