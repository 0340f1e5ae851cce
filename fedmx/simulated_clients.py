"""All clients in this process, one after the other, behind the same messages as over sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fedmx.messages import CODEC
from fedmx.participant import Participant
from layers.compute.compute import Compute
from layers.compute.engine import Engine
from layers.compute.samples import Samples
from layers.logic import (
    Answer,
    ClientFailed,
    ClientLedger,
    Logic,
    Offer,
    Question,
    Task,
    Traffic,
    Update,
    Verdict,
    offer_of,
)
from layers.network import wire_size

Message = TypeVar("Message")


class SimulatedClients:
    """A population that trains when it is waited for, in the order in which it was asked.

    Every message is encoded and decoded as on the wire, so that the reported bytes are those of a
    deployment and a client can reach nothing that did not travel.

    Args:
        logic: the experiment's logic, the same as the server's.
        engine: trains for one client after the other.
        samples: number of samples by client.
        samples_of: gives a client's samples when it trains.
    """

    def __init__(
        self,
        logic: Logic,
        engine: Engine,
        samples: Mapping[int, int],
        samples_of: Callable[[int], Samples],
    ) -> None:
        self._logic = logic
        self._engine = engine
        self._samples = dict(samples)
        self._samples_of = samples_of
        self._ledgers: dict[int, ClientLedger] = {}
        self._tasks: deque[Task] = deque()
        self._granted: deque[Update] = deque()
        self._offered: dict[int, Update] = {}
        self._traffic: dict[int, Traffic] = {}

    foreign = False

    def __enter__(self) -> SimulatedClients:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._clear()

    def population(self) -> Mapping[int, int]:
        """Return every client's number of samples."""
        self._clear()  # a round that an error ended may have left something behind
        return self._samples

    def remembers(self, client: int, round: int) -> bool:
        """Return whether the client's memory after this round is here."""
        return round in self._ledgers.get(client, ClientLedger()).rounds

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[Answer]:
        """Ask clients one after the other."""
        answers = []
        for client in clients:
            asked = self._down(client, question)
            try:
                answers.append(self._up(client, self._participant(client).reply(asked)))
            except Exception as error:
                what = f"survey {question.name!r}: {type(error).__name__}: {error}"
                raise ClientFailed(client, 0, what) from error
        return answers

    def send(self, tasks: Sequence[Task]) -> None:
        """Put tasks in line."""
        self._tasks.extend(tasks)

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Let granted clients send what they offered."""
        for verdict in verdicts:
            received = self._down(verdict.client, verdict)
            update = self._offered.pop(received.client)
            if received.granted:
                self._granted.append(update)

    def events(self) -> Iterator[Offer | Update]:
        """Yield what the clients send, until nobody has anything left to do."""
        while self._granted or self._tasks:
            if self._granted:
                update = self._granted.popleft()
                yield self._up(update.client, update)
                continue
            task = self._tasks.popleft()
            client = task.client
            try:
                update = self._participant(client).take(self._down(client, task))
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise ClientFailed(client, task.round, what) from error
            if task.offer:
                self._offered[client] = update
                yield self._up(client, offer_of(update))
            else:
                yield self._up(client, update)
        self._offered.clear()

    def traffic(self) -> Mapping[int, Traffic]:
        """Return the bytes since the last call."""
        traffic, self._traffic = self._traffic, {}
        return traffic

    def tree(self) -> dict[str, Any]:
        """Return what the clients remember, as named arrays and numbers."""
        return {"ledgers": {client: kept.tree() for client, kept in self._ledgers.items()}}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Give the clients back what they remembered."""
        self._ledgers = {
            client: ClientLedger.of_tree(kept) for client, kept in tree["ledgers"].items()
        }

    def control_bytes(self) -> int:
        """Return 0: nothing but messages travels in a simulation."""
        return 0

    def refusals(self) -> tuple[str, ...]:
        """Return nothing: nobody knocks at a simulation."""
        return ()

    def finish(self, reason: str) -> None:
        """Do nothing: simulated clients wait for no word."""

    def _clear(self) -> None:
        self._tasks.clear()
        self._granted.clear()
        self._offered.clear()

    def _participant(self, client: int) -> Participant:
        def keep(ledger: ClientLedger) -> None:
            self._ledgers[client] = ledger

        compute = Compute(self._engine, self._samples_of(client))
        ledger = self._ledgers.get(client, ClientLedger())
        return Participant(client, self._logic, compute, ledger, keep)

    def _down(self, client: int, message: Message) -> Message:
        received, size = _carried(message)
        self._count(client, Traffic(down_bytes=size))
        return received

    def _up(self, client: int, message: Message) -> Message:
        received, size = _carried(message)
        self._count(client, Traffic(up_bytes=size))
        return received

    def _count(self, client: int, traffic: Traffic) -> None:
        self._traffic[client] = self._traffic.get(client, Traffic()) + traffic


def _carried(message: Message) -> tuple[Message, int]:
    """Return the message as the other end gets it, and its bytes on the wire."""
    payload = CODEC.encode(message)
    received = CODEC.decode(bytearray().join(payload.buffers))
    return received, wire_size(payload.size)
