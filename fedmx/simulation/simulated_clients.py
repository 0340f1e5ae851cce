"""All clients on this machine, behind the same messages as over sockets; time may be virtual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fedmx.protocol.loopback import carried
from fedmx.simulation.executors import Executor, TrainResult
from layers.logic import (
    Answer,
    ClientLedger,
    ClientLost,
    Offer,
    Plan,
    Question,
    Task,
    Times,
    Traffic,
    Update,
    Verdict,
    offer_of,
)
from layers.logic.clock import ClockEvent, RealClock, VirtualClock

Message = TypeVar("Message")


class SimulatedClients:
    """A population whose work is done when it is waited for.

    Every message is encoded and decoded as on the wire, so that the reported bytes are those of a
    deployment and a client can reach nothing that did not travel.

    Args:
        workers: do the clients' work; entered and left with this.
        samples: number of samples by client.
        clock: says what happens when; None: nothing takes any time, and events come in the order
            in which clients were asked.
        file_bytes: what it takes on the wire to send every asset to all of them, once.
    """

    foreign = False

    def __init__(
        self,
        workers: Executor,
        samples: Mapping[int, int],
        clock: VirtualClock | None = None,
        file_bytes: int = 0,
    ) -> None:
        self._workers = workers
        self._samples = dict(samples)
        self._able = [client for client, number in samples.items() if number]
        self._clock = clock or VirtualClock(max(samples, default=-1) + 1)
        self._watch = RealClock()  # tells the time if the clock's stands still
        self._file_bytes = file_bytes  # that no round has reported yet
        self._ledgers: dict[int, ClientLedger] = {}
        self._tasks: dict[int, Task] = {}
        self._made: dict[int, TrainResult] = {}
        self._traffic: dict[int, Traffic] = {}

    def __enter__(self) -> SimulatedClients:
        self._workers.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._clear()
        self._workers.__exit__(*exc_info)

    @property
    def virtual(self) -> bool:
        """Whether time is virtual."""
        return self._clock.virtual

    @property
    def waited_s(self) -> float:
        """Virtual seconds before the round in which no client was there."""
        return self._clock.waited_s

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

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[Answer]:
        """Ask clients one after the other."""
        if question.name == "times":  # what the machine needs says nothing of a device
            return [self._reckoned(question, client) for client in clients]
        answers = []
        for answer, traffic in self._workers.ask(question, clients):
            self._count(answer.client, traffic)
            answers.append(answer)
        return answers

    def begin(self, round: int, plan: Plan) -> None:
        """Begin a round."""
        self._clock.begin(round, plan.clients if plan.in_turn else None)
        self._watch.begin()

    def send(self, tasks: Sequence[Task]) -> None:
        """Give tasks to clients."""
        for task in tasks:
            client = task.client
            down_bytes = self._workers.begin(task, self._ledgers.get(client, ClientLedger()))
            self._count(client, Traffic(down_bytes=down_bytes))
            self._tasks[client] = task
            self._clock.ask(client, self._samples[client], task.training, down_bytes)
            self._watch.ask(client)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Let granted clients send what they offered, and the others leave off."""
        for verdict in verdicts:
            client = verdict.client
            self._down(client, verdict)
            self._clock.decide(client, verdict.granted, verdict.dated_s)
            self._watch.note(client, "decided_s")
            if verdict.granted:
                self._clock.upload(client, self._made[client].up_bytes, verdict.dated_s)
            else:
                self._drop(client)

    def events(self) -> Iterator[Offer | Update | ClientLost]:
        """Yield what the clients send, in virtual order, until nobody has anything left to do."""
        while (happened := self._clock.next()) is not None:
            event = self._event_of(happened)
            if event is not None:
                yield event
        for client in list(self._tasks):
            self._drop(client)
        self._watch.end()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the round began, virtual if time is."""
        return self._clock.elapsed_s if self.virtual else self._watch.elapsed_s

    def times(self) -> Mapping[int, Times]:
        """Return who did what when."""
        return self._clock.times() if self.virtual else self._watch.times()

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

    def control_bytes(self) -> int:
        """Return 0: nobody shakes hands in a simulation."""
        return 0

    def file_bytes(self) -> int:
        """Return the bytes that a deployment would have taken to send the assets."""
        file_bytes, self._file_bytes = self._file_bytes, 0
        return file_bytes

    def keep_assets(self, folder: Path) -> None:
        """Do nothing: simulated clients need no file."""

    def rejections(self) -> tuple[str, ...]:
        """Return nothing: nobody knocks at a simulation."""
        return ()

    def finish(self, reason: str) -> None:
        """Do nothing: simulated clients wait for no word."""

    # --- inside ------------------------------------------------------------------------------

    def _event_of(self, event: ClockEvent) -> Offer | Update | ClientLost | None:
        client = event.client
        task = self._tasks[client]
        if event.kind == "dropped":
            self._drop(client)
            return ClientLost(task.round, client, f"{event.reason} after {event.at_s:g} s")
        if event.kind == "arrived":
            self._watch.note(client, "ended_s")
            made = self._made.pop(client)
            del self._tasks[client]
            self._count(client, Traffic(up_bytes=made.up_bytes))
            return made.update
        self._made[client] = made = self._workers.made(client)
        self._ledgers[client] = made.ledger
        self._watch.note(client, "trained_s")
        if not task.offer:
            self._clock.upload(client, made.up_bytes)
            return None
        samples, training = self._samples[client], task.training
        _, upload_s = self._clock.reckon(client, samples, training, made.up_bytes, task.round)
        offer = self._up(client, offer_of(made.update, upload_s))
        return replace(offer, at_s=self._clock.elapsed_s)

    def _reckoned(self, question: Question, client: int) -> Answer:
        """Return a client's answer to the question how long it will take, by its device."""
        self._down(client, question)
        train_s, upload_s = self._clock.reckon(
            client,
            self._samples[client],
            question.training,
            question.model_bytes,
            question.round,
        )
        values: dict[str, Any] = {"train_s": train_s, "upload_s": upload_s}
        return self._up(client, Answer(client, question.name, values, question.round))

    def _drop(self, client: int) -> None:
        """Want nothing more of a client in this round."""
        self._watch.note(client, "ended_s")
        self._tasks.pop(client, None)
        if self._made.pop(client, None) is None:
            self._workers.forget(client)

    def _clear(self) -> None:
        for client in list(self._tasks):
            self._drop(client)

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
