"""Simulated clients: the same messages as over sockets, and time that may be virtual."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fedmx.protocol.loopback import carried
from fedmx.server.clients import Overhead
from fedmx.simulation.executors.executor import Executor, TrainResult, Work
from layers.logic import (
    Answer,
    ClientLedger,
    ClientLost,
    LogicError,
    Offer,
    Plan,
    Question,
    Task,
    TimerFired,
    Times,
    Traffic,
    Update,
    Verdict,
    offer_of,
)
from layers.logic.client_sizes import ClientSizes
from layers.logic.clock import Clock, ClockEvent, InstantClock, VirtualClock

Message = TypeVar("Message")


class SimulatedClients:
    """A population of clients whose work an executor does.

    Every message is encoded and decoded as on the wire. So the reported bytes are those of a
    deployment, and a client can reach nothing that was not sent to it.

    Args:
        executor: does the clients' work; entered and left together with this object.
        samples: number of samples by client.
        clock: virtual time; None: nothing takes virtual time, and events come in the order in which
            clients were asked.
        file_bytes: bytes on the wire for sending every asset to every client once.
    """

    foreign = False
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
        self._outstanding: Mapping[int, Task] = {}  # a view of the round's tasks
        self._work: dict[int, Work] = {}  # by client, of tasks without a result
        self._results: dict[int, TrainResult] = {}  # by client, before their updates are sent
        self._traffic: dict[int, Traffic] = {}

    def __enter__(self) -> SimulatedClients:
        self._executor.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._cancel_all()
        self._executor.__exit__(*exc_info)

    @property
    def clock(self) -> Clock:
        """The clock by which rounds are timed."""
        return self._clock

    # --- for the logic layer: `Peers` --------------------------------------------------------

    def population(self) -> Mapping[int, int]:
        """Return the clients that are available now, with their numbers of samples."""
        self._cancel_all()  # a round that ended with an error may have left work
        self._clock.settle()
        if self._clock.everybody_there:
            return self._samples
        available = self._clock.available_of(self._samples.ids)
        if available is not self._available:  # else what selectors derived from it holds
            everybody = len(available) == len(self._samples.ids)
            self._population = self._samples if everybody else self._samples.only(available)
            self._available = available
        return self._population

    def samples_of(self, client: int) -> int:
        """Return the client's number of samples."""
        return self._samples.get(client, 0)

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client has its hooks' memory after this round."""
        return round in self._ledgers.get(client, ClientLedger()).rounds

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Ask clients one after the other; all of them answer."""
        if question.name == "times":  # the machine's own speed is not the device's
            return [self._device_times(question, client) for client in clients]
        answers = []
        for answer, traffic in self._executor.ask(question, clients):
            self._count(answer.client, traffic)
            answers.append(answer)
        return answers

    def begin(
        self, round: int, plan: Plan, outstanding: Mapping[int, Task], deadline_s: float | None
    ) -> None:
        """Begin a round.

        Raises:
            LogicError: the plan keeps stragglers, whose work a simulation does not carry on.
        """
        if plan.keeps_stragglers or plan.late:
            raise LogicError(
                f"round {round}: the plan keeps stragglers in flight, and simulated clients end "
                "their work with the round; use a plan without keeps_stragglers and late, or deploy"
            )
        self._outstanding = outstanding
        turns = plan.clients if plan.in_turn else None
        self._clock.begin(round, outstanding, deadline_s, turns, plan.before_s, plan.after_s)

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks; the executor may begin the work at once."""
        for task in tasks:
            client = task.client
            work = self._executor.submit(task, self._ledgers.get(client, ClientLedger()))
            self._count(client, Traffic(down_bytes=work.down_bytes))
            self._work[client] = work
            self._clock.ask(client, self._samples[client], task.training, work.down_bytes)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Send verdicts: granted clients send their update, the work of the others is cancelled."""
        for verdict in verdicts:
            client = verdict.client
            self._down(client, verdict)
            self._clock.decide(client, verdict.granted, verdict.dated_s)
            if verdict.granted:
                self._clock.upload(client, self._results[client].up_bytes, verdict.dated_s)
            else:
                self._cancel(client)

    def set_timer(self, at_s: float | None) -> None:
        """Set the moment, in virtual time, at which the timer fires."""
        self._clock.set_timer(at_s)

    def events(self) -> Generator[Offer | Update | ClientLost | TimerFired, None, None]:
        """Yield the round's events in the order of virtual time, until no task is outstanding."""
        while (clock_event := self._clock.next()) is not None:
            event = self._event_of(clock_event)
            if event is not None:
                yield event
        self._cancel_all()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, by the clients' clock."""
        return self._clock.elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client of the round."""
        return self._clock.times()

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes of messages since the last call, by client."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    # --- for the server: `Clients` -----------------------------------------------------------

    def tree(self) -> dict[str, Any]:
        """Return the clients' ledgers and the time of the run, as named arrays and numbers."""
        ledgers = {client: kept.tree() for client, kept in self._ledgers.items()}
        return {"ledgers": ledgers, "run_s": self._clock.run_s}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Go on from what `tree` returned."""
        self._ledgers = {
            client: ClientLedger.of_tree(kept) for client, kept in tree["ledgers"].items()
        }
        self._clock.restore(tree["run_s"])
        self._file_bytes = 0  # the run's first round reported them

    def overhead(self) -> Overhead:
        """Return the cost besides messages since the last call, as in a deployment."""
        file_bytes, self._file_bytes = self._file_bytes, 0
        return Overhead(file_bytes=file_bytes)

    def finish(self, reason: str) -> None:
        """Cancel all work that is left."""
        self._cancel_all()

    # --- inside ------------------------------------------------------------------------------

    def _event_of(self, event: ClockEvent) -> Offer | Update | ClientLost | TimerFired | None:
        if event.kind == "timer":
            return TimerFired()
        client = event.client
        task = self._outstanding[client]
        if event.kind == "dropped":
            self._cancel(client)
            return ClientLost(task.round, client, f"{event.reason} after {event.at_s:g} s")
        if event.kind == "arrived":
            result = self._results.pop(client)
            self._count(client, Traffic(up_bytes=result.up_bytes))
            return result.update
        self._results[client] = result = self._work.pop(client).result()
        self._ledgers[client] = result.ledger
        self._clock.trained(client)
        if not task.offer:
            self._clock.upload(client, result.up_bytes)
            return None
        samples, training = self._samples[client], task.training
        _, upload_s = self._clock.estimate(client, samples, training, result.up_bytes, task.round)
        offer = self._up(client, offer_of(result.update, upload_s))
        return replace(offer, at_s=event.at_s)

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
        """Cancel a client's work in this round."""
        self._results.pop(client, None)
        work = self._work.pop(client, None)
        if work is not None:
            work.cancel()

    def _cancel_all(self) -> None:
        """Cancel all work."""
        for client in [*self._work, *self._results]:
            self._cancel(client)

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
