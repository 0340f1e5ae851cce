"""All clients on this machine, behind the same messages as over sockets; time may be virtual."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

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
from layers.logic.clock import Clock, ClockEvent, InstantClock, VirtualClock

Message = TypeVar("Message")


class SimulatedClients:
    """A population whose work is done when it is waited for.

    Every message is encoded and decoded as on the wire, so that the reported bytes are those of a
    deployment and a client can reach nothing that did not travel.

    Args:
        executor: does the clients' work; entered and left with this.
        samples: number of samples by client.
        clock: says what happens when; None: nothing takes any time, and events come in the order
            in which clients were asked.
        file_bytes: what it takes on the wire to send every asset to all of them, once.
    """

    foreign = False
    address = ""  # nobody connects

    def __init__(
        self,
        executor: Executor,
        samples: Mapping[int, int],
        clock: VirtualClock | None = None,
        file_bytes: int = 0,
    ) -> None:
        self._executor = executor
        self._samples = dict(samples)
        self._able = [client for client, number in samples.items() if number]
        self._clock = clock or InstantClock(max(samples, default=-1) + 1)
        self._file_bytes = file_bytes  # that no round has reported yet
        self._ledgers: dict[int, ClientLedger] = {}
        self._outstanding: Mapping[int, Task] = {}  # a view of the round's
        self._work: dict[int, Work] = {}  # of tasks without a result
        self._results: dict[int, TrainResult] = {}  # of which the update has not been sent yet
        self._traffic: dict[int, Traffic] = {}

    def __enter__(self) -> SimulatedClients:
        self._executor.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._clear()
        self._executor.__exit__(*exc_info)

    @property
    def clock(self) -> Clock:
        """The clients' clock."""
        return self._clock

    # --- what the logic layer asks -----------------------------------------------------------

    def population(self) -> Mapping[int, int]:
        """Return every client's number of samples, of those that are there now."""
        self._clear()  # a round that an error ended may have left something behind
        self._clock.settle()
        there = self._clock.there(self._able)
        if len(there) == len(self._able):
            return self._samples
        return {client: self._samples[client] for client in there}

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client's memory after this round is here."""
        return round in self._ledgers.get(client, ClientLedger()).rounds

    def ask(
        self, question: Question, clients: Sequence[int], deadline_s: float | None
    ) -> Sequence[Answer]:
        """Ask clients one after the other; all of them answer."""
        if question.name == "times":  # what the machine needs says nothing of a device
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
        self._clock.begin(round, outstanding, deadline_s, turns)

    def send(self, tasks: Sequence[Task]) -> None:
        """Give tasks to clients."""
        for task in tasks:
            client = task.client
            work = self._executor.submit(task, self._ledgers.get(client, ClientLedger()))
            self._count(client, Traffic(down_bytes=work.down_bytes))
            self._work[client] = work
            self._clock.ask(client, self._samples[client], task.training, work.down_bytes)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Let granted clients send what they offered, and the others leave off."""
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
        """Yield what the clients send, in virtual order, until no task is outstanding."""
        while (happened := self._clock.next()) is not None:
            event = self._event_of(happened)
            if event is not None:
                yield event
        self._clear()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, virtual if time is."""
        return self._clock.elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return who did what when."""
        return self._clock.times()

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes since the last call."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    # --- what the server asks ----------------------------------------------------------------

    def tree(self) -> dict[str, Any]:
        """Return what the clients remember, and what time it is, as named arrays and numbers."""
        ledgers = {client: kept.tree() for client, kept in self._ledgers.items()}
        return {"ledgers": ledgers, "run_s": self._clock.run_s}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Give the clients back what they remembered."""
        self._ledgers = {
            client: ClientLedger.of_tree(kept) for client, kept in tree["ledgers"].items()
        }
        self._clock.restore(tree["run_s"])
        self._file_bytes = 0  # the first round has reported them

    def overhead(self) -> Overhead:
        """Return what a deployment would have taken besides messages, since the last call."""
        file_bytes, self._file_bytes = self._file_bytes, 0
        return Overhead(file_bytes=file_bytes)

    def finish(self, reason: str) -> None:
        """Let go of everything that clients were still to do."""
        self._clear()

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
        """Return a client's answer to the question how long it will take, by its device."""
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
        """Want nothing more of a client in this round."""
        self._results.pop(client, None)
        work = self._work.pop(client, None)
        if work is not None:
            work.cancel()

    def _clear(self) -> None:
        """Let go of all work."""
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
