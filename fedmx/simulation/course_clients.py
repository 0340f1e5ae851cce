"""Clients that do again what those of a deployed run did, as its course says."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedmx.course.comparison import Comparison
from fedmx.course.course import Course
from fedmx.course.course_event import Kept, UpdateArrived
from fedmx.course.course_round import CourseRound
from fedmx.course.errors import CourseError
from fedmx.protocol.messages import CODEC
from fedmx.server.clients import Overhead
from fedmx.simulation.executors.executor import Executor, Work
from layers.logic import (
    Answer,
    ClientFailed,
    ClientLedger,
    ClientLost,
    Offer,
    Plan,
    Question,
    ServerState,
    StateLost,
    Task,
    TimerFired,
    Times,
    Traffic,
    Update,
    Verdict,
)
from layers.logic.clock import Clock
from layers.logic.core.messages import EMPTY
from layers.logic.core.state import EXCLUDED


class CourseClients:
    """The clients of a deployed run, once more: an executor makes the updates that arrived then.

    All else is told to the server as it was then: who was there, what came in which order and when,
    who was lost. Every update and every answer is compared with its recorded hash.

    Args:
        executor: does the clients' work; entered and left together with this object.
        course: the course of the run.
    """

    foreign = True  # as then: an error of a server side rejects the update
    address = ""  # no client connects
    virtual = False
    waited_s = 0.0

    def __init__(self, executor: Executor, course: Course) -> None:
        self._executor = executor
        self._course = course
        self._round: CourseRound | None = None
        self._comparison: Comparison | None = None
        self._looks = 0  # at the population of the round
        self._samples: Mapping[int, int] = {}
        self._announced: int | None = None  # with the present event
        self._elapsed_s = 0.0
        self._outstanding: Mapping[int, Task] = {}  # a view of the round's tasks
        self._ledgers: dict[int, ClientLedger] = {}
        self._work: dict[int, Work] = {}  # by client, of tasks whose update will arrive

    def __enter__(self) -> CourseClients:
        self._executor.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._cancel_all()
        self._executor.__exit__(*exc_info)

    def starts_from(self, state: ServerState) -> ServerState:
        """Return the state that the round after `state` began with; the round comes next.

        Raises:
            CourseError: the course has no such round.
        """
        self._round = round = self._course.round(state.round + 1)
        self._looks, self._elapsed_s, self._announced = 0, 0.0, None
        self._comparison = Comparison(round)
        if not round.excluded:
            return state
        return replace(state, memory={**state.memory, EXCLUDED: dict(round.excluded)})

    # --- for the logic layer: `Peers` --------------------------------------------------------

    def population(self) -> Mapping[int, int]:
        """Return the clients that could be asked at this point, with their numbers of samples."""
        populations = self._now.populations
        self._samples = populations[min(self._looks, len(populations) - 1)]
        self._looks += 1
        return self._samples

    def samples_of(self, client: int) -> int:
        """Return how many samples the client said at this point that it has."""
        return self._samples.get(client, 0) if self._announced is None else self._announced

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client had its hooks' memory after this round."""
        return self._then.next_task(client).last_accepted_round == round

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Return the answers that came then; measured times are those of then.

        Raises:
            CourseError: an answer is another one now, or another question was asked.
        """
        then = self._then.asked(question)
        if then.answers:
            return [CODEC.decode(answer) for answer in then.answers.values()]
        answers = []
        for answer, _ in self._executor.ask(question, list(then.sha256)):
            self._then.made(answer.client, answer, then.sha256[answer.client])
            answers.append(answer)
        return answers

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round."""
        self._outstanding = outstanding

    def send(self, tasks: Sequence[Task]) -> None:
        """Begin the work on those tasks whose update arrived then.

        Raises:
            CourseError: another task was sent then.
        """
        for task in tasks:
            client = task.client
            self._then.sent(task)
            self._cancel(client)
            if self._arrives(task):
                ledger = self._ledgers.get(client, ClientLedger())
                self._work[client] = self._executor.submit(task, ledger)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Compare verdicts with those of then.

        Raises:
            CourseError: one is another one now.
        """
        for verdict in verdicts:
            self._then.answered(verdict)

    def set_timer(self, at_s: float | None) -> None:
        """Do nothing: the timer fires when it fired then."""

    def events(self) -> Generator[Offer | Update | ClientLost | StateLost | TimerFired, None, None]:
        """Yield the round's events in the order of then.

        Raises:
            CourseError: an update that counted is another one now.
        """
        try:
            for kept in self._now.events:
                self._elapsed_s, self._announced = kept.at_s, kept.samples
                yield self._event_of(kept.event)
        finally:
            self._elapsed_s = self._now.took_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, as then."""
        return self._elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client, as then."""
        return self._now.times

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages by client, as then.

        Raises:
            CourseError: tasks were sent then, and not now.
        """
        self._then.ended()
        return self._now.traffic

    # --- for the server: `Clients` -----------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """The clock of the rounds, which shows the times of then."""
        return self

    def tree(self) -> dict[str, Any]:
        """Return the clients' ledgers as named arrays and numbers."""
        return {"ledgers": {client: kept.tree() for client, kept in self._ledgers.items()}}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Go on from what `tree` returned, or from the deployed server's part of a checkpoint.

        Deployed clients keep the memory of their hooks themselves. So they begin without one after
        the latter, and the hashes tell if that matters.
        """
        ledgers = tree.get("ledgers", {})
        self._ledgers = {client: ClientLedger.of_tree(kept) for client, kept in ledgers.items()}

    def overhead(self) -> Overhead:
        """Return the cost besides messages, as then."""
        then = dict(self._now.overhead)
        rejected = tuple(then.pop("rejected_connections", ()))
        return Overhead(**then, rejected_connections=rejected)

    def finish(self, reason: str) -> None:
        """Cancel all work that is left."""
        self._cancel_all()

    # --- inside ------------------------------------------------------------------------------

    @property
    def _now(self) -> CourseRound:
        if self._round is None:
            raise CourseError("no round has begun; iterate over the server that has these clients")
        return self._round

    @property
    def _then(self) -> Comparison:
        assert self._comparison is not None  # a round begins with `starts_from`
        return self._comparison

    def _arrives(self, task: Task) -> bool:
        """Return whether an update of a client arrived after this task was sent."""
        return (task.client, task.round) in self._course.late or any(
            isinstance(one.event, UpdateArrived) and one.event.client == task.client
            for one in self._now.events
        )

    def _event_of(self, kept: Kept) -> Offer | Update | ClientLost | StateLost | TimerFired:
        if not isinstance(kept, UpdateArrived):
            return kept
        if kept.client not in self._outstanding:  # it was noted, and nothing of it was used
            return Update(kept.round, kept.client, 0, 0, EMPTY, EMPTY)
        rejected = ClientLost(kept.round, kept.client, kept.rejected or "", rejected=True)
        work = self._work.pop(kept.client, None)
        if work is None:
            if kept.rejected is not None:
                return rejected
            raise CourseError(
                f"round {self._now.round}, client {kept.client}: its task is of round "
                f"{kept.round}, before the round that was begun with; begin with an earlier one",
                self._now.round,
                kept.client,
            )
        try:
            result = work.result()
            self._then.made(kept.client, result.update, kept.sha256)
        except (ClientFailed, CourseError):
            if kept.rejected is None:
                raise
            return rejected  # a client that breaks the rules made it: what it sent is not known
        self._ledgers[kept.client] = result.ledger
        return result.update

    def _cancel(self, client: int) -> None:
        work = self._work.pop(client, None)
        if work is not None:
            work.cancel()

    def _cancel_all(self) -> None:
        for client in list(self._work):
            self._cancel(client)
