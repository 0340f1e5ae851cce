"""The client: it connects to a server, trains when it is asked, and sends what it made."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedmx.client.asset_receiver import AssetReceiver, check_announced
from fedmx.client.memory import ClientMemory
from fedmx.client.participant import Participant
from fedmx.client.speed_estimate import SpeedEstimate
from fedmx.components.text import first_line, shown
from fedmx.errors import FedmxError
from fedmx.protocol.messages import (
    CODEC,
    AnnouncedAsset,
    CannotTakePart,
    Failed,
    Finished,
    Lacking,
    Ready,
    Setup,
)
from layers.compute.blas import one_blas_thread
from layers.compute.engines.compute import Compute
from layers.logic import Logic, Question, Task, Update, Verdict, offer_of
from layers.network import (
    Connected,
    Connector,
    Disconnected,
    FileFailed,
    FileReceived,
    GaveUp,
    NotConnected,
    Received,
    Retrying,
    Sent,
    wire_size,
)
from layers.network import Event as NetworkEvent

log = logging.getLogger("fedmx.client")
RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ServerRefusedError(FedmxError):
    """The server does not want this client, or does not answer any more."""


@dataclass
class Client:
    """One client of a deployed run.

    Attributes:
        network: the connector to the server.
        logic: the same value as the server's; None to learn it from the server.
        compute: the engine, and this client's own samples; None to build it when it is known.
        learn: makes logic and compute from what the server says, where they are None.
        memory: the folder in which hooks' memory survives this process; None: it does not.
        assets: where assets are received; None: they cannot be.
        reason: why the run is over, once it is.
    """

    network: Connector
    logic: Logic | None = None
    compute: Compute | None = None
    learn: Callable[[Setup], tuple[Logic, Compute]] | None = None
    memory: Path | None = None
    assets: AssetReceiver | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        self._learns = self.logic is None or self.compute is None
        if self._learns and self.learn is None:
            raise FedmxError("a client needs logic and compute, or `learn` to make them")
        self._setup: Setup | None = None
        self._lacking: set[str] = set()  # the assets that the server was asked for
        self._kept: ClientMemory | None = None
        self._participant: Participant | None = None
        self._made: tuple[Task, Update] | None = None
        self._waiting: deque[NetworkEvent] = deque()
        self._speed = SpeedEstimate()

    def __enter__(self) -> Client:
        self.network.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.network.__exit__(*exc_info)  # type: ignore[arg-type]
        if self.assets is not None:
            self.assets.close()

    def run(self) -> str:
        """Take part until the run is over; return why it is.

        Raises:
            ServerRefusedError: the server refuses this client, or is gone for good.
            FedmxError, LogicError, ComputeError: the experiment cannot be done here.
        """
        for update in self.updates():
            log.info("round %d: made an update of %d steps", update.round, update.steps)
        return self.reason

    def updates(self) -> Iterator[Update]:
        """Take part, and yield each update that was made."""
        self.reason = ""
        while True:
            event = self._waiting.popleft() if self._waiting else self.network.next_event(None)
            if event is None:
                raise FedmxError("the client's connection is closed; use it inside `with client:`")
            if isinstance(event, Connected):
                log.info("connected to %s", self.network.address)
                self._lacking = set()
            elif isinstance(event, Disconnected):
                log.warning("disconnected: %s; trying to get back", event.reason)
                self._lacking = set()
            elif isinstance(event, Retrying):
                log.info("%s; trying again in %.1f s", event.reason, event.delay_s)
            elif isinstance(event, GaveUp):
                raise ServerRefusedError(event.reason)
            elif isinstance(event, Sent):
                if event.message == Update.__name__:
                    self._speed.sent()
            elif isinstance(event, FileReceived | FileFailed):
                self._receive_asset(event)
            elif isinstance(event, Received):
                message = event.message
                if isinstance(message, Finished):
                    self.reason = message.reason
                    if self._kept is not None:
                        self._kept.discard()
                    if self._setup is not None and self.assets is not None:
                        self.assets.discard(self._setup)
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
            self._answer(self._participant, message)
        elif isinstance(message, Task):
            return self._take(self._participant, message)
        elif isinstance(message, Verdict) and message.granted:
            made = self._made
            if made is not None and made[0].round == message.round:
                self._send_update(made[1])
        return None

    def _begin(self, setup: Setup) -> None:
        """Learn what the run is, and say that this client is ready, or why it cannot be."""
        known = self._setup
        try:
            if known is None or _run(known) != _run(setup) or self._participant is None:
                self._participant = self._prepare(setup)
                self._setup, self._made = setup, None
            participant = self._participant
            self._lacking = self._look_up(setup, participant)
        except Exception as error:
            self._send(CannotTakePart(setup.client, first_line(error)))
            raise
        lacking = [asset for asset in setup.assets if asset.name in self._lacking]
        if lacking:
            for asset in lacking:
                log.info("waiting for the asset %s, %d bytes", asset.name, asset.size_bytes)
            self._send(Lacking(setup.run, setup.client, tuple(asset.name for asset in lacking)))
            return
        samples, kept = len(participant.compute.samples), participant.ledger.rounds
        digests = tuple(asset.sha256 for asset in setup.assets)
        self._send(Ready(setup.run, setup.client, samples, kept, digests))

    def _look_up(self, setup: Setup, participant: Participant) -> set[str]:
        """Give the participant the assets whose files are here; return those that it lacks."""
        for asset in setup.assets:
            if asset.name not in participant.assets:
                self._load(asset, participant)
        return {asset.name for asset in setup.assets} - participant.assets.keys()

    def _load(self, asset: AnnouncedAsset, participant: Participant) -> bool:
        """Give the participant an asset; return whether its file is here and the right one."""
        return self.assets is not None and self.assets.load(asset, participant)

    def _receive_asset(self, event: FileReceived | FileFailed) -> None:
        """Take a file that has come; say that this client is ready when it was the last one."""
        if not self._lacking or self._setup is None or self._participant is None:
            return  # it is there already, or a new connection has not said yet what is wanted
        setup, participant = self._setup, self._participant
        try:
            if isinstance(event, FileFailed):
                raise FedmxError(f"the asset {event.name} cannot be had: {event.reason}")
            names = {asset.file_name(setup.client): asset for asset in setup.assets}
            asset = names.get(event.path.name)
            if asset is None or not self._load(asset, participant):
                event.path.unlink(missing_ok=True)
                raise FedmxError(
                    f"the server sent {event.path.name} with SHA-256 {event.sha256[:16]}..., which "
                    "is not an asset that it had announced"
                )
        except FedmxError as error:
            self._send(CannotTakePart(setup.client, first_line(error)))
            raise
        self._lacking.discard(asset.name)
        if not self._lacking:
            self._begin(setup)

    def _prepare(self, setup: Setup) -> Participant:
        if RUN.fullmatch(setup.run) is None:  # it becomes a part of a file's name
            raise FedmxError(f"the server calls its run {shown(setup.run)}, which is no run's name")
        check_announced(setup)
        logic, compute = self.logic, self.compute
        if self._learns or logic is None or compute is None:
            assert self.learn is not None  # it was asked for at the beginning
            self.logic, self.compute = logic, compute = self.learn(setup)
        missing = logic.assets.keys() - {asset.name for asset in setup.assets}
        if missing:
            raise FedmxError(
                f"hooks need the assets {', '.join(sorted(missing))}, which the server does not "
                "announce; let it serve an experiment with these hooks"
            )
        self._kept = memory = ClientMemory(self.memory, setup.run, setup.client)
        return Participant(setup.client, logic, compute, memory.load(), memory.keep)

    def _answer(self, participant: Participant, question: Question) -> None:
        try:
            reply = participant.reply(question)
            if question.name == "times":
                samples = len(participant.compute.samples)
                reply = self._speed.improve(reply, question, samples)
            self._send(reply)
        except Exception as error:
            log.exception("the survey %r failed", question.name)
            self._fail(0, participant.client, error)

    def _take(self, participant: Participant, task: Task) -> Update | None:
        if task.client != participant.client:
            raise FedmxError(f"a task for client {task.client} came to client {participant.client}")
        self._look_ahead()
        if any(_is_task_after(event, task.round) for event in self._waiting):
            log.info("round %d is over already", task.round)
            return None
        if not task.has_model:
            self._send_again(task)
            return None
        try:
            made = self._made
            if made is None or not _same(made[0], task):
                began = time.monotonic()
                with one_blas_thread():
                    made = (task, participant.take(task))
                self._speed.trained(*made, time.monotonic() - began)
                CODEC.encode(made[1])  # what cannot travel is this client's failure, too
        except Exception as error:
            log.exception("round %d failed", task.round)
            self._fail(task.round, task.client, error)
            return None
        self._made = made
        update = made[1]
        self._look_ahead()
        if any(_is_refusal(event, task.round) for event in self._waiting):
            log.info("round %d: the update is not wanted any more", task.round)
        elif task.offer:
            self._send(offer_of(update, self._speed.upload_s))
        else:
            self._send_update(update)
        return update

    def _send_again(self, task: Task) -> None:
        """Send the update of a task of an earlier round, which comes without its model."""
        if self._made is not None and self._made[0].round == task.round:
            self._send_update(self._made[1])
        else:
            reason = f"started again after round {task.round}, whose update is lost"
            self._send(Failed(task.round, task.client, reason, ""))

    def _fail(self, round: int, client: int, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        self._send(Failed(round, client, reason, traceback.format_exc()))

    def _look_ahead(self) -> None:
        """See what has happened in the meantime, without waiting."""
        while (event := self.network.next_event(0.0)) is not None:
            self._waiting.append(event)

    def _send_update(self, update: Update) -> None:
        self._speed.sending(wire_size(CODEC.encode(update).size))
        self._send(update)

    def _send(self, message: object) -> None:
        self._look_ahead()
        if any(isinstance(event, Disconnected) for event in self._waiting):
            # A newer connection must hear first that this client is ready.
            log.info("disconnected meanwhile: the server will ask again when this client is back")
            return
        try:
            self.network.send(message)
        except NotConnected:
            log.info("not connected: the server will ask again when this client is back")


def _run(setup: Setup) -> tuple[str, tuple[AnnouncedAsset, ...]]:
    """Return what of a setup must stay the same for a participant to go on."""
    return setup.run, setup.assets


def _is_task_after(event: NetworkEvent, round: int) -> bool:
    return (
        isinstance(event, Received)
        and isinstance(event.message, Task)
        and event.message.round > round
    )


def _is_refusal(event: NetworkEvent, round: int) -> bool:
    if not isinstance(event, Received) or not isinstance(event.message, Verdict):
        return False
    return event.message.round == round and not event.message.granted


def _same(one: Task, other: Task) -> bool:
    """Whether two tasks are equal, so that the answer to one is the answer to the other."""
    if (one.round, one.seed, one.last_accepted_round) != (
        other.round,
        other.seed,
        other.last_accepted_round,
    ):
        return False
    return bytes(CODEC.encode(one)) == bytes(CODEC.encode(other))
