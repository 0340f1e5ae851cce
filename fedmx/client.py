"""The client: it connects to a server, trains when it is asked, and sends what it made."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedmx.client_memory import ClientMemory
from fedmx.errors import FedmxError
from fedmx.messages import CannotTakePart, Failed, Finished, Ready, Setup
from fedmx.participant import Participant
from layers.compute.compute import Compute
from layers.compute.errors import ComputeError
from layers.logic import Logic, LogicError, Question, Task, Update, Verdict, offer_of
from layers.network import (
    Connected,
    Connector,
    Disconnected,
    GaveUp,
    NotConnected,
    Received,
    Retrying,
)

log = logging.getLogger("fedmx.client")


class ServerRefusedError(FedmxError):
    """The server does not want this client, or does not answer any more."""


class Work(Protocol):
    """What a client works with, once it knows the experiment."""

    logic: Logic
    compute: Compute


@dataclass
class Client:
    """One client of a deployed run.

    Attributes:
        network: the connector to the server.
        logic: the same value as the server's; None to learn it from the server.
        compute: the engine, and this client's own samples; None to build it when it is known.
        learn: makes logic and compute from what the server says, where they are None.
        memory: the folder in which hooks' memory survives this process; None: it does not.
    """

    network: Connector
    logic: Logic | None = None
    compute: Compute | None = None
    learn: Callable[[Setup], tuple[Logic, Compute]] | None = None
    memory: Path | None = None

    def __post_init__(self) -> None:
        self._setup: Setup | None = None
        self._participant: Participant | None = None
        self._made: tuple[Task, Update] | None = None

    def __enter__(self) -> Client:
        self.network.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.network.close()

    def run(self) -> str:
        """Take part until the run is over; return why it is.

        Raises:
            ServerRefusedError: the server refuses this client, or is gone for good.
            FedmxError, LogicError, ComputeError: the experiment cannot be done here.
        """
        for update in self.updates():
            log.info("round %d: sent an update of %d steps", update.round, update.steps)
        return self.reason

    def updates(self) -> Iterator[Update]:
        """Take part, and yield each update that was made."""
        self.reason = ""
        while True:
            event = self.network.next_event(None)
            if isinstance(event, Connected):
                log.info("connected to %s", self.network.address)
            elif isinstance(event, Disconnected):
                log.warning("disconnected: %s; trying to get back", event.reason)
            elif isinstance(event, Retrying):
                log.info("%s; trying again in %.1f s", event.reason, event.delay_s)
            elif isinstance(event, GaveUp):
                raise ServerRefusedError(f"{self.network.address}: {event.reason}")
            elif isinstance(event, Received):
                message = event.message
                if isinstance(message, Finished):
                    self.reason = message.reason
                    return
                update = self._handle(message)
                if update is not None:
                    yield update

    def _handle(self, message: object) -> Update | None:
        if isinstance(message, Setup):
            self._begin(message)
        elif self._participant is None:
            log.warning("ignored a %s before the setup", type(message).__name__)
        elif isinstance(message, Question):
            self._send(self._participant.reply(message))
        elif isinstance(message, Task):
            return self._take(self._participant, message)
        elif isinstance(message, Verdict) and message.granted:
            made = self._made
            if made is not None and made[0].round == message.round:
                self._send(made[1])
        return None

    def _begin(self, setup: Setup) -> None:
        """Learn what the run is, and say that this client is ready, or why it cannot be."""
        known = self._setup
        if known is None or known.run != setup.run or self._participant is None:
            try:
                self._participant = self._prepare(setup)
            except (FedmxError, LogicError, ComputeError) as error:
                self._send(CannotTakePart(setup.client, str(error)))
                raise
            self._setup, self._made = setup, None
        samples = len(self._participant.compute.samples)
        self._send(Ready(setup.run, setup.client, samples))

    def _prepare(self, setup: Setup) -> Participant:
        if self.logic is None or self.compute is None:
            if self.learn is None:
                raise FedmxError("a client needs logic and compute, or `learn` to make them")
            self.logic, self.compute = self.learn(setup)
        memory = ClientMemory(self.memory, setup.run, setup.client)
        return Participant(setup.client, self.logic, self.compute, memory.load(), memory.keep)

    def _take(self, participant: Participant, task: Task) -> Update | None:
        if task.client != participant.client:
            raise FedmxError(f"a task for client {task.client} came to client {participant.client}")
        made = self._made
        if made is None or (made[0].round, made[0].seed) != (task.round, task.seed):
            try:
                made = (task, participant.take(task))
            except Exception as error:
                log.exception("round %d failed", task.round)
                reason = f"{type(error).__name__}: {error}"
                self._send(Failed(task.round, task.client, reason, traceback.format_exc()))
                return None
            self._made = made
        update = made[1]
        self._send(offer_of(update) if task.offer else update)
        return update

    def _send(self, message: object) -> None:
        try:
            self.network.send(message)
        except NotConnected:
            log.info("not connected: the server will ask again when this client is back")
