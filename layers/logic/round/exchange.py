"""The commands that a round gives its carrier, the events that it gets back, and the carrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias

from layers.logic.core.messages import Offer, Task, Update, Verdict
from layers.logic.core.report import Overhead, Times, Traffic
from layers.logic.core.state import ServerState
from layers.logic.core.survey import Answer, Question

# --- commands: the round to its carrier ------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """Send a question to clients; each of them leads to one `Answered` or `ClientLost`."""

    question: Question
    clients: tuple[int, ...]


@dataclass(frozen=True)
class Begin:
    """Begin to collect: the clock of the round starts at 0.

    Attributes:
        round: number of the round, from 1.
        before_s: virtual seconds that pass before the first task leaves.
        after_s: virtual seconds that pass after the last update.
        turns: the order in which simulated uploads must follow each other; None: as they are ready.
        late: tasks of earlier rounds, without vectors, whose updates this round accepts. The
            carrier drops all other tasks that are in flight.
        asynchronous: whether tasks may stay in flight when the round ends.
    """

    round: int
    before_s: float = 0.0
    after_s: float = 0.0
    turns: tuple[int, ...] | None = None
    late: tuple[Task, ...] = ()
    asynchronous: bool = False


@dataclass(frozen=True)
class SendTask:
    """Send a task; it leads to one `Update` or `ClientLost`, perhaps after an `Offer`.

    A client that lacks the memory that the task names leads to `StateLost`, and gets no task.
    """

    task: Task


TimerName: TypeAlias = Literal["deadline", "offers", "patience", "refill"]


@dataclass(frozen=True)
class SetTimer:
    """Set the moment at which a `TimerFired` of this name comes; each timer fires once.

    Attributes:
        name: the timer; setting it again replaces it.
        at_s: seconds since the round began; None: it does not fire.
    """

    name: TimerName
    at_s: float | None


@dataclass(frozen=True)
class Cancel:
    """Stop waiting for a client's update or answer; one that still comes is too late.

    Attributes:
        client: number of the client.
        give_up: why the client is disconnected; empty: it stays connected.
        within_s: seconds in which its answer had to come; None: no answer is waited for.
    """

    client: int
    give_up: str = ""
    within_s: float | None = None


@dataclass(frozen=True)
class Close:
    """Stop the clock of the round; no event of a client follows, except answers."""


@dataclass(frozen=True)
class ReportCosts:
    """Report the costs of the round; the next event is `Costs`."""


Command: TypeAlias = Ask | Begin | SendTask | Verdict | SetTimer | Cancel | Close | ReportCosts

# --- events: the carrier to the round --------------------------------------------------------


@dataclass(frozen=True)
class Answered:
    """A client has answered a question."""

    answer: Answer


@dataclass(frozen=True)
class ClientLost:
    """No update or answer will come from this client in this round, and why.

    Attributes:
        round: round of the task or of the question, from 1.
        client: number of the client.
        reason: why, in one line.
        traceback: the client's traceback if its own code failed; otherwise empty.
        rejected: whether a message of the client was rejected; otherwise the client was lost.
        ordered: whether an operator ended its task, so that the client is not to blame.
    """

    round: int
    client: int
    reason: str
    traceback: str = ""
    rejected: bool = False
    ordered: bool = False

    @property
    def is_silence(self) -> bool:
        """Whether the client sent nothing: neither an error nor a message that was rejected."""
        return not self.rejected and not self.traceback and not self.ordered


@dataclass(frozen=True)
class StateLost:
    """The client lacks the memory that its task needs, and waits for another task.

    Its process has ended since its last update, and the new one does not have the memory.
    """

    round: int
    client: int


@dataclass(frozen=True)
class TimerFired:
    """A timer of the round has fired; it follows all other events of the same time.

    The timer "deadline" also fires when nothing more can come from any client.
    """

    name: TimerName = "offers"


@dataclass(frozen=True)
class Joined:
    """A client can be asked from now on, or has another number of samples now."""

    client: int
    samples: int


@dataclass(frozen=True)
class Left:
    """A client cannot be asked any more."""

    client: int


@dataclass(frozen=True)
class Costs:
    """The cost of a round.

    Attributes:
        took_s: duration in seconds by the clock of the carrier.
        waited_s: virtual seconds before the round in which no client was available.
        traffic: bytes of messages since the round before, by client.
        times: times of each client in the round.
        overhead: the cost besides messages.
    """

    took_s: float
    waited_s: float = 0.0
    traffic: Mapping[int, Traffic] = field(default_factory=dict)
    times: Mapping[int, Times] = field(default_factory=dict)
    overhead: Overhead = field(default_factory=Overhead)

    def __add__(self, later: Costs) -> Costs:
        """Return the cost up to `later`, which was reported after this one in the same round."""
        traffic = dict(self.traffic)
        for client, one in later.traffic.items():
            traffic[client] = traffic.get(client, Traffic()) + one
        return replace(later, traffic=traffic, overhead=self.overhead + later.overhead)


Event: TypeAlias = (
    Answered | Offer | Update | ClientLost | StateLost | TimerFired | Joined | Left | Costs
)


class Carrier(Protocol):
    """Carries a round's commands to its clients, and their events back.

    There are three: simulated clients, remote clients, and the journal of a recorded run.
    """

    @property
    def untrusted(self) -> bool:
        """Whether the server does not control the clients' processes.

        Then a client may have caused the error of a server side: the update is rejected, with the
        traceback, and the round continues. In a simulation the error ends the run.
        """

    def open_round(self, state: ServerState) -> tuple[ServerState, Mapping[int, int]]:
        """Return the state that the next round begins with, and the clients that can be asked.

        It waits until there are enough clients. The clients have their numbers of samples.
        """

    def exchange(self, commands: Sequence[Command]) -> tuple[Event, float]:
        """Carry out the commands in order; return the next event, and its time in the round.

        The client's number in a message is that of its sender. The time is in seconds by the clock
        of these clients, since the round was opened, or since `Begin` once it has begun.
        """
