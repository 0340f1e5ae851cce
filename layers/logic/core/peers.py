"""What the logic layer asks of whatever carries tasks to clients: a simulation or sockets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from layers.logic.core.messages import Event, Task, Verdict
from layers.logic.core.plan import Plan
from layers.logic.core.survey import Answer, Question
from layers.logic.core.times import Times


@dataclass(frozen=True)
class Traffic:
    """Lengths of the encoded frames between the server and one client.

    Attributes:
        down_bytes: to the client.
        up_bytes: from the client.
    """

    down_bytes: int = 0
    up_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.down_bytes + other.down_bytes, self.up_bytes + other.up_bytes)


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
        """Return whether the client still has what its hooks kept after this round.

        One of which that is not known has not: it is told to begin anew.
        """

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[Answer]:
        """Return the answers of those of `clients` that answered."""

    def begin(self, round: int, plan: Plan) -> None:
        """Begin a round: the clock is at 0, and tasks for the clients of this plan will follow."""

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; each brings one `Update` or `ClientLost`, an `Offer` perhaps before it."""

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Answer offers, also after the last event.

        A client that is declined brings nothing more in this round, whether it offered or not.
        """

    def events(self) -> Iterator[Event]:
        """Yield what arrives, until nothing is outstanding or the round's deadline has passed.

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
