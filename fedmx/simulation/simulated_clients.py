"""Simulated clients: the same messages as over sockets, and time that may be virtual."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedmx.protocol.loopback import carried
from fedmx.report.formats import duration
from fedmx.simulation.executors.executor import Executor, TrainResult, Work
from layers.logic import (
    Answer,
    ClientLedger,
    ClientLost,
    ClientState,
    Overhead,
    Question,
    ServerState,
    StateLost,
    Task,
    TimerFired,
    TooFewUpdates,
    Traffic,
    Verdict,
    offer_of,
)
from layers.logic.client_sizes import ClientSizes
from layers.logic.clock import ClockEvent, InstantClock, VirtualClock
from layers.logic.core.state import frozen
from layers.logic.round.exchange import (
    Answered,
    Ask,
    Begin,
    Cancel,
    Close,
    Command,
    Costs,
    Event,
    ReportCosts,
    SendTask,
    SetTimer,
)

Message = TypeVar("Message")


class SimulatedClients:
    """The carrier of a simulation, whose clients' work an executor does.

    Every message is encoded and decoded as on the wire. So the reported bytes are those of a
    deployment, and a client can reach nothing that was not sent to it.

    Args:
        executor: does the clients' work; entered and left together with this object.
        samples: number of samples by client.
        clock: virtual time; None: nothing takes virtual time, and events come in the order in which
            clients were asked.
        file_bytes: bytes on the wire for sending every asset to every client once.
    """

    untrusted = False
    address = ""  # no client connects

    def __init__(
        self,
        executor: Executor,
        samples: Mapping[int, int],
        clock: VirtualClock | None = None,
        file_bytes: int = 0,
    ) -> None:
        self._executor = executor
        self._samples = self._population = ClientSizes.of(samples)
        self._available: np.ndarray | None = None  # the clients of `_population`; None: all
        self._clock = clock or InstantClock(self._samples.end)
        self._file_bytes = file_bytes  # not yet reported by a round
        self._ledgers: dict[int, ClientLedger] = {}
        self._tasks: dict[int, Task] = {}  # by client, the task that it works on
        self._keeps = False  # whether tasks stay in flight when the round ends
        self._work: dict[int, Work] = {}  # by client, of tasks without a result
        self._results: dict[int, TrainResult] = {}  # by client, before their updates are sent
        self._traffic: dict[int, Traffic] = {}
        self._events: deque[Event] = deque()  # to return before the clock's next one

    def __enter__(self) -> SimulatedClients:
        self._executor.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.finish("")
        self._executor.__exit__(*exc_info)

    # --- `Carrier` ---------------------------------------------------------------------------

    def open_round(self, state: ServerState) -> tuple[ServerState, Mapping[int, int]]:
        """Return the state, and the clients that are available with their numbers of samples."""
        if not self._keeps:
            self.finish("")  # a round that ended with an error may have left work
        self._clock.settle()
        return state, self._population_now()

    def exchange(self, commands: Sequence[Command]) -> tuple[Event, float]:
        """Carry out the commands; return the next event in the order of virtual time.

        Raises:
            ClientFailed: a client's own code failed.
        """
        for command in commands:
            self._carry(command)
        while not self._events:
            event = self._event_of(self._clock.next())
            if event is not None:
                return event, self._clock.elapsed_s
        return self._events.popleft(), self._clock.elapsed_s

    # --- `RunCarrier` ------------------------------------------------------------------------

    patience = None  # a client's work ends by itself

    @property
    def virtual(self) -> bool:
        """Whether the time of its events is virtual."""
        return self._clock.virtual

    @property
    def opened_s(self) -> float | None:
        """Virtual seconds of the run at which the last round was opened; None: real time."""
        return self._clock.opened_s if self._clock.virtual else None

    def population_at(self, run_s: float) -> Mapping[int, int]:
        """Return the clients that are available at this virtual time of the run."""
        self._clock.restore({"run_s": run_s})
        return self._population_now()

    def tree(self) -> dict[str, Any]:
        """Return the ledgers, the time, and the tasks in flight, as named arrays and numbers."""
        ledgers = {client: kept.tree() for client, kept in self._ledgers.items()}
        tasks = {"tasks": tree_of_tasks(self._tasks.values())} if self._tasks else {}
        return {"ledgers": ledgers, **self._clock.tree(), **tasks}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Continue from the result of `tree`."""
        self._ledgers = {
            client: ClientLedger.of_tree(kept) for client, kept in tree["ledgers"].items()
        }
        self._clock.restore(tree)
        self._file_bytes = 0  # the run's first round reported them
        self._tasks = {one.client: one for one in tasks_of_tree(tree.get("tasks", {}))}
        self._keeps = bool(self._tasks)
        self._work.clear()
        self._results.clear()

    def memory_of(self, client: int, state: ServerState) -> ClientState:
        """Return a client's memory after its last accepted update."""
        return self._ledgers.get(client, ClientLedger()).accepted(client, state)

    def keep_assets(self, folder: Path) -> None:
        """Do nothing: clients have the assets in memory."""

    def forget(self, reason: str) -> None:
        """Cancel all work."""
        self.finish(reason)
        self._clock.drop()

    def again(self, error: TooFewUpdates) -> bool:
        """Return no: the same clients would bring the same updates."""
        return False

    def finish(self, reason: str) -> None:
        """Cancel all work that is left."""
        for client in list(self._tasks):
            self._cancel(client)

    # --- inside ------------------------------------------------------------------------------

    def _population_now(self) -> Mapping[int, int]:
        if self._clock.everybody_there:
            return self._samples
        available = self._clock.available_of(self._samples.ids)
        if available is not self._available:  # else what selectors derived from it holds
            everybody = len(available) == len(self._samples.ids)
            self._population = self._samples if everybody else self._samples.only(available)
            self._available = available
        return self._population

    def _carry(self, command: Command) -> None:
        match command:
            case SendTask(task):
                self._send(task)
            case Verdict():
                self._answer(command)
            case SetTimer(name, at_s):
                self._clock.set_timer(name, at_s)
            case Cancel(client):
                self._cancel(client)
                self._clock.cancel(client)
            case Ask(question, clients):
                self._ask(question, clients)
            case Begin():
                self._begin(command)
            case Close():
                self._clock.close()
            case ReportCosts():
                self._events.append(self._accounts())

    def _begin(self, begin: Begin) -> None:
        self._events.clear()
        late = {task.client for task in begin.late}
        self._events.extend(
            ClientLost(task.round, task.client, "its task is not known here any more")
            for task in begin.late
            if task.client not in self._tasks
        )
        for client in self._tasks.keys() - late:
            self._cancel(client)
            self._clock.cancel(client)
        for client, task in self._tasks.items():
            if client not in self._work and client not in self._results:  # of a checkpoint
                ledger = self._ledgers.get(client, ClientLedger())
                self._work[client] = self._executor.submit(task, ledger)
        self._keeps = begin.asynchronous
        self._clock.begin(begin.turns, begin.before_s, begin.after_s, begin.asynchronous)

    def _ask(self, question: Question, clients: Sequence[int]) -> None:
        """Ask clients one after the other; all of them answer."""
        if question.name == "times":  # the machine's own speed is not the device's
            answers = [self._device_times(question, client) for client in clients]
        else:
            answers = []
            for result in self._executor.ask(question, clients, self._ledgers):
                self._count(result.answer.client, result.traffic)
                result.keep(self._ledgers)
                answers.append(result.answer)
        self._events.extend(Answered(answer) for answer in answers)

    def _send(self, task: Task) -> None:
        """Send a task; the executor may begin the work at once."""
        client, last = task.client, task.last_accepted_round
        ledger = self._ledgers.get(client, ClientLedger())
        if last and last not in ledger.rounds:
            self._events.append(StateLost(task.round, client))
            return
        work = self._executor.submit(task, ledger)
        self._count(client, Traffic(down_bytes=work.down_bytes))
        self._tasks[client] = task if self._keeps else task.without_vectors()
        self._work[client] = work
        self._clock.ask(client, self._samples[client], task.training, work.down_bytes, task.round)

    def _answer(self, verdict: Verdict) -> None:
        """Send a verdict: a granted client sends its update, the work of a declined one ends."""
        client = verdict.client
        self._down(client, verdict)
        self._clock.decide(client, verdict.granted, verdict.dated_s)
        if verdict.granted:
            self._clock.upload(client, self._results[client].up_bytes, verdict.dated_s)
        else:
            self._cancel(client)

    def _accounts(self) -> Costs:
        traffic, self._traffic = self._traffic, {}
        file_bytes, self._file_bytes = self._file_bytes, 0
        return Costs(
            took_s=self._clock.elapsed_s,
            waited_s=self._clock.waited_s,
            traffic=traffic,
            times=self._clock.times(),
            overhead=Overhead(file_bytes=file_bytes),
        )

    def _event_of(self, event: ClockEvent) -> Event | None:
        if event.kind == "timer":
            return TimerFired(event.reason)  # type: ignore[arg-type]
        client = event.client
        task = self._tasks[client]
        if event.kind == "dropped":
            self._cancel(client)
            return ClientLost(task.round, client, f"{event.reason} after {duration(event.at_s)}")
        if event.kind == "arrived":
            del self._tasks[client]
            result = self._results.pop(client, None) or self._trained(client)
            self._count(client, Traffic(up_bytes=result.up_bytes))
            return result.update
        self._results[client] = result = self._trained(client)
        self._clock.trained(client)
        if not task.offer:
            self._clock.upload(client, result.up_bytes)
            return None
        samples, training = self._samples[client], task.training
        _, upload_s = self._clock.estimate(client, samples, training, result.up_bytes, task.round)
        offer = self._up(client, offer_of(result.update, upload_s))
        return replace(offer, at_s=event.at_s)

    def _trained(self, client: int) -> TrainResult:
        """Return the result of a client's task, and keep the client's memory."""
        result = self._work.pop(client).result()
        self._ledgers[client] = result.ledger
        return result

    def _device_times(self, question: Question, client: int) -> Answer:
        """Return a client's answer to a question about times, from its simulated device."""
        self._down(client, question)
        train_s, upload_s = self._clock.estimate(
            client,
            self._samples[client],
            question.training,
            question.model_bytes,
            question.round,
        )
        values: dict[str, Any] = {"train_s": train_s, "upload_s": upload_s}
        return self._up(client, Answer(client, question.name, values, question.round))

    def _cancel(self, client: int) -> None:
        """Cancel a client's work."""
        self._tasks.pop(client, None)
        self._results.pop(client, None)
        work = self._work.pop(client, None)
        if work is not None:
            work.cancel()

    def _down(self, client: int, message: Message) -> Message:
        received, size = carried(message)
        self._count(client, Traffic(down_bytes=size))
        return received

    def _up(self, client: int, message: Message) -> Message:
        received, size = carried(message)
        self._count(client, Traffic(up_bytes=size))
        return received

    def _count(self, client: int, traffic: Traffic) -> None:
        self._traffic[client] = self._traffic.get(client, Traffic()) + traffic


def tree_of_tasks(tasks: Iterable[Task]) -> dict[str, Any]:
    """Return tasks as named arrays and numbers; tasks that share a vector share it there."""
    vectors: dict[int, np.ndarray] = {}
    headers = {}
    for task in tasks:
        for vector in (task.weights, task.buffers):
            vectors[id(vector)] = vector
        places = {"weights": id(task.weights), "buffers": id(task.buffers)}
        headers[task.client] = {**task.header(), "vectors": places, "slots": task.slots}
    place = {key: number for number, key in enumerate(vectors)}
    for header in headers.values():
        header["vectors"] = {name: place[key] for name, key in header["vectors"].items()}
    return {"tasks": headers, "vectors": dict(enumerate(vectors.values()))}


def tasks_of_tree(tree: Mapping[str, Any]) -> list[Task]:
    """Return the tasks that `tree_of_tasks` was given."""
    vectors = {place: frozen(vector) for place, vector in tree.get("vectors", {}).items()}
    tasks = []
    for kept in tree.get("tasks", {}).values():
        header = {name: value for name, value in kept.items() if name not in ("vectors", "slots")}
        weights, buffers = (vectors[kept["vectors"][name]] for name in ("weights", "buffers"))
        task = Task.of_header(header)
        tasks.append(replace(task, weights=weights, buffers=buffers, slots=dict(kept["slots"])))
    return tasks
