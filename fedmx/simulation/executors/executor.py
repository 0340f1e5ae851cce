"""The interface of a simulation to its executor, and the executor that works in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from fedmx.assembly.assembly import Assembly
from fedmx.client.participant import Participant
from fedmx.errors import FedmxError
from fedmx.protocol.loopback import carried
from fedmx.protocol.messages import CODEC
from layers.compute.data.dataset import Samples
from layers.compute.engines.engine import Compute, Engine
from layers.compute.metrics import Metric
from layers.logic import (
    Answer,
    ClientFailed,
    ClientLedger,
    Logic,
    Question,
    Task,
    Traffic,
    Update,
)
from layers.logic.core.messages import EMPTY
from layers.logic.core.state import RoundMemory
from layers.logic.core.survey import HOOKS
from layers.logic.errors import reason_of
from layers.logic.round.pipeline import Trace
from layers.logic.secrets import Secret
from layers.network import wire_size


@dataclass(frozen=True, eq=False)
class TrainResult:
    """The result of a client's task.

    Attributes:
        update: the update, as the server receives it.
        up_bytes: bytes of the update on the wire.
        ledger: the memory of the client's hooks after the task.
    """

    update: Update
    up_bytes: int
    ledger: ClientLedger


@dataclass(frozen=True, eq=False)
class Work:
    """A task that an executor has accepted.

    Attributes:
        down_bytes: bytes of the task on the wire.
        result: waits for the result and returns it, or raises ClientFailed; called once.
        cancel: cancels the task.
    """

    down_bytes: int
    result: Callable[[], TrainResult]
    cancel: Callable[[], None]


@dataclass(frozen=True, eq=False)
class AnswerResult:
    """A client's answer to a question.

    Attributes:
        answer: the answer, as the server receives it.
        traffic: bytes of the question and of the answer on the wire.
        within: the memory of the client's hooks within the round, after the answer.
    """

    answer: Answer
    traffic: Traffic
    within: RoundMemory

    def keep(self, ledgers: dict[int, ClientLedger]) -> None:
        """Note the memory within the round in the client's ledger."""
        client = self.answer.client
        if self.answer.question in HOOKS and (self.within.round or client in ledgers):
            ledger = ledgers.get(client, ClientLedger())
            ledgers[client] = replace(ledger, within=self.within)


class Executor(Protocol):
    """Does the work of simulated clients; each of its workers can work for any client."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Submit a task, in the order in which results are needed; its work may begin at once."""

    def ask(
        self, question: Question, clients: Sequence[int], ledgers: Mapping[int, ClientLedger]
    ) -> Sequence[AnswerResult]:
        """Return the answers of clients in their order.

        Args:
            question: the question.
            clients: the clients.
            ledgers: the ledgers of these and other clients; none: it is empty.

        Raises:
            ClientFailed: a client's code failed.
        """


class ExecutorFailed(FedmxError):
    """The workers cannot do any job; the message says why."""


class WorkerTraceback(Exception):
    """The cause of an error that was raised in a worker; its text is the worker's traceback.

    Attributes:
        place: FILE:LINE of the user's own code that raised it; empty: not in user code.
    """

    def __init__(self, traceback: str, place: str) -> None:
        super().__init__(f"in a worker:\n{traceback}")
        self.place = place


class SerialExecutor:
    """Works in this process, for one client after the other, so that breakpoints in hooks work.

    A task begins when its result is requested.

    Args:
        logic: the logic of the experiment, equal to the server's.
        engine: trains for one client after the other.
        samples_of: returns a client's samples.
        assets: the samples of the assets that every client has, by name; None: none.
        secret: the secret of every client; None: each one's follows the seed.
        tests_of: returns a client's samples for evaluation; None: it has none.
        metrics: what an evaluation measures; None: the usual metrics.
    """

    def __init__(
        self,
        logic: Logic,
        engine: Engine,
        samples_of: Callable[[int], Samples],
        assets: Mapping[str, Samples] | None = None,
        secret: Secret | None = None,
        tests_of: Callable[[int], Samples | None] = lambda client: None,
        metrics: tuple[Metric, ...] | None = None,
    ) -> None:
        self._tests_of, self._metrics = tests_of, metrics
        self._logic = logic
        self._engine = engine
        self._samples_of = samples_of
        self._assets = assets or {}
        self._secret = secret
        self._weights = EMPTY
        self.trace: Trace | None = None  # takes each step of a client's task and update

    @classmethod
    def of(cls, assembly: Assembly) -> SerialExecutor:
        """Return the executor of an experiment."""
        assets = assembly.asset_samples
        secret = Secret.elsewhere("each client") if assembly.deployed else None
        parts = assembly.logic, assembly.engine, assembly.samples_of
        return cls(*parts, assets, secret, assembly.tests_of, assembly.metrics)

    def __enter__(self) -> SerialExecutor:
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def participant(self, client: int, ledger: ClientLedger) -> Participant:
        """Return a client that can train or answer."""
        tests = partial(self._tests_of, client)
        compute = Compute(self._engine, self._samples_of(client), self._metrics, tests)
        return Participant(
            client,
            self._logic,
            compute,
            ledger,
            assets=self._assets,
            trace=self.trace,
            secret=self._secret,
        )

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Keep a task until its result is requested."""
        received, size = self._received(task)
        return Work(size, lambda: self._train(received, ledger), lambda: None)

    def ask(
        self, question: Question, clients: Sequence[int], ledgers: Mapping[int, ClientLedger]
    ) -> Sequence[AnswerResult]:
        """Ask clients one after the other."""
        answers = []
        for client in clients:
            asked, down_bytes = carried(question)
            try:
                participant = self.participant(client, ledgers.get(client, ClientLedger()))
                answer, up_bytes = carried(participant.answer(asked))
            except Exception as error:
                what = f"survey {question.name!r}: {reason_of(error)}"
                raise ClientFailed(client, 0, what) from error
            within = participant.ledger.within
            answers.append(AnswerResult(answer, Traffic(down_bytes, up_bytes), within))
        return answers

    def _received(self, task: Task) -> tuple[Task, int]:
        """Return a task as the client receives it, and its bytes; equal weights are kept once."""
        last = self._weights
        if last.shape != task.weights.shape or last.tobytes() != task.weights.tobytes():
            received, size = carried(task)
            self._weights = received.weights
            return received, size
        size = wire_size(CODEC.encode(task).size)
        received, _ = carried(replace(task, weights=EMPTY))
        return replace(received, weights=last), size

    def _train(self, task: Task, ledger: ClientLedger) -> TrainResult:
        with failing(task):
            participant = self.participant(task.client, ledger)
            update, size = carried(participant.train(task))
        return TrainResult(update, size, participant.ledger)


@contextmanager
def failing(task: Task) -> Iterator[None]:
    """Let an error name the client of a task.

    Raises:
        ClientFailed: an error was raised.
    """
    try:
        yield
    except Exception as error:
        raise ClientFailed(task.client, task.round, reason_of(error)) from error
