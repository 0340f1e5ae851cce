"""The client: it connects to a server, trains on its tasks and sends the updates."""

from __future__ import annotations

import re
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.client.asset_receiver import AssetReceiver, check_announced
from fedmx.client.kept_model import KeptModel
from fedmx.client.participant import ClientMemory, Participant, SpeedEstimate
from fedmx.client.policy import RefusedByPolicy
from fedmx.client.releases import Releases
from fedmx.components.text import first_line, shown, without_folders
from fedmx.connection_log import ConnectionLog
from fedmx.errors import FedmxError
from fedmx.log import Log
from fedmx.protocol.messages import (
    CODEC,
    AnnouncedAsset,
    CannotTakePart,
    Failed,
    Finished,
    MissingAssets,
    Ready,
    Setup,
)
from layers.compute.bits import OtherInstructionsError, one_blas_thread
from layers.compute.engines.engine import Compute
from layers.logic import Logic, Question, Task, Update, Verdict, offer_of
from layers.logic.core.hook import Process
from layers.logic.core.survey import EVALUATE
from layers.logic.errors import reason_of
from layers.logic.record_size import REASON_BYTES, TRACEBACK_BYTES, shortened
from layers.network import (
    Connected,
    Connector,
    Disconnected,
    FileFailed,
    FileReceived,
    GaveUp,
    NotConnected,
    Received,
    Sent,
    wire_size,
)
from layers.network import Event as NetworkEvent

log = Log("fedmx.client")
RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_EVENTS = 64  # that wait here; the network layer bounds what waits behind them


class ServerRefusedError(FedmxError):
    """The server rejects this client, or no longer answers."""


@dataclass
class Client:
    """One client of a deployed run.

    Attributes:
        network: the connector to the server.
        logic: the logic of the experiment, equal to the server's; None: `learn` makes it.
        compute: the engine, and this client's own samples; None: `learn` makes it.
        learn: makes logic and compute from the server's setup message.
        memory: the folder in which hooks' memory survives this process; None: it does not.
        assets: receives assets; None: this client cannot receive any.
        releases: what this client has sent, and its own limits.
        kept_model: keeps the models that it evaluates; None: nothing does.
        process: what hooks keep in this process alone, and its certificate.
        reason: why the run has ended; empty: it has not.
        failed: the number of tasks and questions at which this client failed.
        update_bytes: the size of the last update on the wire; 0: there is none.
    """

    network: Connector
    logic: Logic | None = None
    compute: Compute | None = None
    learn: Callable[[Setup], tuple[Logic, Compute]] | None = None
    memory: Path | None = None
    assets: AssetReceiver | None = None
    releases: Releases = field(default_factory=Releases)
    kept_model: KeptModel | None = None
    process: Process = field(default_factory=Process)
    reason: str = ""
    failed: int = 0
    update_bytes: int = 0

    def __post_init__(self) -> None:
        self._learns = self.logic is None or self.compute is None
        if self._learns and self.learn is None:
            raise FedmxError("a client needs logic and compute, or `learn` to make them")
        self._connection_log = ConnectionLog(log, self.network)
        self._setup: Setup | None = None
        self._missing_assets: set[str] = set()  # the assets that this client has asked for
        self._memory: ClientMemory | None = None
        self._newest_task = 0  # `Received.number` of the last task on this connection
        self._participant: Participant | None = None
        self._last_result: tuple[Task, Update] | None = None
        self._events: deque[NetworkEvent] = deque()
        self._speed = SpeedEstimate()

    def __enter__(self) -> Client:
        self.network.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.network.__exit__(*exc_info)  # type: ignore[arg-type]
        if self.assets is not None:
            self.assets.close()
        self.releases.close()

    def run(self) -> str:
        """Take part until the run has ended; return why it has.

        Raises:
            ServerRefusedError: the server rejects this client, or no longer answers.
            FedmxError: this client cannot take part in the experiment.
            LogicError: its logic cannot be made here.
            ComputeError: its model or data cannot be made here.
        """
        for update in self.updates():
            log.info(
                "update_made",
                "round {round}: made an update, local steps: {steps}",
                round=update.round,
                steps=update.steps,
            )
        return self.reason

    def updates(self) -> Iterator[Update]:
        """Take part, and yield each update that this client makes."""
        self.reason = ""
        while True:
            event = self._events.popleft() if self._events else self._next_event(None)
            if event is None:
                raise FedmxError("the client's connection is closed; use it inside `with client:`")
            self._connection_log.handle(event)
            if isinstance(event, Connected | Disconnected):
                self._missing_assets = set()
            elif isinstance(event, GaveUp):
                raise ServerRefusedError(event.reason)
            elif isinstance(event, Sent):
                if event.message == Update.__name__:
                    self._speed.sent()
            elif isinstance(event, FileReceived | FileFailed):
                self._handle_file(event)
            elif isinstance(event, Received):
                message = event.message
                if isinstance(message, Finished):
                    self.reason = message.reason
                    if self._memory is not None:
                        self._memory.discard()
                    if self._setup is not None and self.assets is not None:
                        self.assets.discard(self._setup)
                    return
                update = self._handle_message(message)
                if update is not None:
                    yield update

    def _handle_message(self, message: object) -> Update | None:
        if isinstance(message, Setup):
            self._handle_setup(message)
        elif self._participant is None:
            log.warning(
                "message_ignored",
                "ignored a {message} before the setup",
                message=type(message).__name__,
            )
        elif isinstance(message, Question):
            self._handle_question(self._participant, message)
        elif isinstance(message, Task):
            return self._handle_task(self._participant, message)
        elif isinstance(message, Verdict) and message.granted:
            result = self._last_result
            if result is not None and result[0].round == message.round:
                self._send_update(result[1])
        return None

    def _handle_setup(self, setup: Setup) -> None:
        """Prepare for the run; send `Ready`, `MissingAssets` or `CannotTakePart`."""
        known = self._setup
        try:
            if (
                known is None
                or _identity_of(known) != _identity_of(setup)
                or self._participant is None
            ):
                self._participant = self._make_participant(setup)
                self._setup, self._last_result = setup, None
            participant = self._participant
            if self.assets is not None:
                self.network.expect(self.assets.expect(setup))
            self._missing_assets = self._load_assets(setup, participant)
        except OtherInstructionsError:
            raise  # the operator can start this client again, so the server need not give it up
        except Exception as error:
            self._send_cannot(setup, error)
            raise
        missing = [asset for asset in setup.assets if asset.name in self._missing_assets]
        if missing:
            for asset in missing:
                log.info(
                    "waiting_for_asset",
                    "waiting for the asset {asset}, {size_bytes} bytes",
                    asset=asset.name,
                    size_bytes=asset.size_bytes,
                )
            self._send(
                MissingAssets(setup.run, setup.client, tuple(asset.name for asset in missing))
            )
            return
        samples, kept = len(participant.compute.samples), participant.ledger.rounds
        digests = tuple(asset.sha256 for asset in setup.assets)
        self._send(Ready(setup.run, setup.client, samples, kept, digests))

    def _load_assets(self, setup: Setup, participant: Participant) -> set[str]:
        """Give the participant the received assets; return the names of the missing ones."""
        for asset in setup.assets:
            if asset.name not in participant.assets:
                self._load_asset(asset, participant)
        return {asset.name for asset in setup.assets} - participant.assets.keys()

    def _load_asset(self, asset: AnnouncedAsset, participant: Participant) -> bool:
        """Give the participant an asset; return whether its file was received and is right."""
        return self.assets is not None and self.assets.load(asset, participant)

    def _handle_file(self, event: FileReceived | FileFailed) -> None:
        """Take a received file; when it is the last missing one, send that this client is ready."""
        if not self._missing_assets or self._setup is None or self._participant is None:
            return  # not missing, or the setup of a new connection has not come yet
        setup, participant = self._setup, self._participant
        try:
            if isinstance(event, FileFailed):
                raise FedmxError(f"the asset {event.name} was not received: {event.reason}")
            names = {asset.file_name(setup.client): asset for asset in setup.assets}
            asset = names.get(event.path.name)
            if asset is None or not self._load_asset(asset, participant):
                event.path.unlink(missing_ok=True)
                raise FedmxError(
                    f"the server sent {event.path.name} with SHA-256 {event.sha256[:16]}..., which "
                    "is not an asset that it announced"
                )
        except FedmxError as error:
            self._send_cannot(setup, error)
            raise
        self._missing_assets.discard(asset.name)
        if not self._missing_assets:
            self._handle_setup(setup)

    def _make_participant(self, setup: Setup) -> Participant:
        if RUN.fullmatch(setup.run) is None:  # it becomes part of a file name
            raise FedmxError(f"the server calls its run {shown(setup.run)}, which is no run's name")
        check_announced(setup)
        self.releases.begin(setup.run, setup.experiment)
        logic, compute = self.logic, self.compute
        if self._learns or logic is None or compute is None:
            assert self.learn is not None  # checked in __post_init__
            self.logic, self.compute = logic, compute = self.learn(setup)
        missing = logic.assets.keys() - {asset.name for asset in setup.assets}
        if missing:
            raise FedmxError(
                f"hooks need the assets {', '.join(sorted(missing))}, which the server does not "
                "announce; let it serve an experiment with these hooks"
            )
        self._memory = memory = ClientMemory(self.memory, setup.run, setup.client)
        return Participant(
            setup.client,
            logic,
            compute,
            memory.load(),
            memory.keep,
            secret=memory.secret,
            process=self.process,
        )

    def _handle_question(self, participant: Participant, question: Question) -> None:
        try:
            if question.name == "statistics" and self.releases.policy is not None:
                self.releases.policy.check_statistics(len(participant.compute.samples))
            answer = participant.answer(question)
            if question.name == "times":
                samples = len(participant.compute.samples)
                answer = self._speed.improve(answer, question, samples)
            self.releases.keep_answers()
            self._send(answer)
            if question.name == EVALUATE and self.kept_model is not None:
                self.kept_model.keep(question, answer.values, participant.compute)
        except Exception as error:
            log.exception("survey_failed", "the survey {survey!r} failed", survey=question.name)
            self._send_failed(0, participant.client, error)

    def _handle_task(self, participant: Participant, task: Task) -> Update | None:
        if task.client != participant.client:
            raise FedmxError(f"a task for client {task.client} came to client {participant.client}")
        self._poll()
        if any(_is_task_after(event, task.round) for event in self._events):
            log.info("round_over", "round {round} has ended already", round=task.round)
            return None
        if not task.has_model:
            self._send_again(task)
            return None
        try:
            result = self._last_result
            if result is None or not _is_same(result[0], task):
                digest = self.releases.check(task, participant.logic)
                with one_blas_thread(), self.releases.limited():
                    began = time.monotonic()
                    result = (task, participant.train(task))
                self._speed.trained(*result, time.monotonic() - began)
                # An update that cannot be sent is this client's failure.
                self.update_bytes = wire_size(CODEC.encode(result[1]).size)
                self.releases.keep(digest, *result, participant.logic)
        except RefusedByPolicy as error:
            reason = first_line(error)
            log.warning("task_refused", "round {round}: {reason}", round=task.round, reason=reason)
            self._send(Failed(task.round, task.client, reason, ""))
            return None
        except Exception as error:
            log.exception("training_failed", "round {round} failed", round=task.round)
            self._send_failed(task.round, task.client, error)
            return None
        self._last_result = result
        update = result[1]
        self._poll()
        if any(_is_declined(event, task.round) for event in self._events):
            log.info("update_declined", "round {round}: the update was declined", round=task.round)
        elif task.offer:
            self._send(offer_of(update, self._speed.upload_s))
        else:
            self._send_update(update)
        return update

    def _send_again(self, task: Task) -> None:
        """Send the update of a task of an earlier round, which comes without its model."""
        result = self._last_result
        if result is not None and result[0].round == task.round:
            self._send_update(result[1])
        else:
            reason = f"started again after round {task.round}, whose update is lost"
            self._send(Failed(task.round, task.client, reason, ""))

    def _send_cannot(self, setup: Setup, error: Exception) -> None:
        self._send(CannotTakePart(setup.client, without_folders(first_line(error))))

    def _send_failed(self, round: int, client: int, error: Exception) -> None:
        place = getattr(error, "place", "")  # of a part of the experiment
        reason = without_folders(f"{reason_of(error)}{f' ({place})' if place else ''}")
        trace = without_folders(traceback.format_exc())
        self.failed += 1
        reason = shortened(reason, REASON_BYTES)
        self._send(Failed(round, client, reason, shortened(trace, TRACEBACK_BYTES, from_end=True)))

    def _poll(self) -> None:
        """Queue the network events that have come in the meantime, without waiting.

        A server that asks again no longer waits for the earlier answer, so that of tasks, and of
        questions, the last one is kept.
        """
        while len(self._events) < MOST_EVENTS:
            event = self._next_event(0.0)
            if event is None:
                return
            if isinstance(event, Received) and isinstance(event.message, Task | Question):
                kind = type(event.message)
                others = [one for one in self._events if not _brings(one, kind)]
                self._events = deque(others)
            self._events.append(event)

    def _next_event(self, timeout_s: float | None) -> NetworkEvent | None:
        """Return the next network event, but no task that was sent before one that has come.

        A large task that is sent again on a new connection may arrive after a small later one. Its
        round has ended, and the memory before it may be gone.
        """
        while True:
            event = self.network.next_event(timeout_s)
            if isinstance(event, Connected):
                self._newest_task = 0
            elif isinstance(event, Received) and isinstance(event.message, Task):
                if event.number < self._newest_task:
                    round = event.message.round
                    log.info("round_over", "round {round} has ended already", round=round)
                    continue
                self._newest_task = event.number
            return event

    def _send_update(self, update: Update) -> None:
        self._speed.sending(self.update_bytes)
        self._send(update)

    def _send(self, message: object) -> None:
        self._poll()
        if any(isinstance(event, Disconnected) for event in self._events):
            # On a new connection, `Ready` must be the first message.
            log.info(
                "answer_not_sent",
                "disconnected; the server will ask again when this client reconnects",
            )
            return
        try:
            self.network.send(message)
        except NotConnected:
            log.info(
                "answer_not_sent",
                "not connected; the server will ask again when this client reconnects",
            )


def _identity_of(setup: Setup) -> tuple[str, tuple[AnnouncedAsset, ...]]:
    """Return the part of a setup that must stay the same for a participant to go on."""
    return setup.run, setup.assets


def _brings(event: NetworkEvent, kind: type) -> bool:
    return isinstance(event, Received) and isinstance(event.message, kind)


def _is_task_after(event: NetworkEvent, round: int) -> bool:
    return (
        isinstance(event, Received)
        and isinstance(event.message, Task)
        and event.message.round > round
    )


def _is_declined(event: NetworkEvent, round: int) -> bool:
    if not isinstance(event, Received) or not isinstance(event.message, Verdict):
        return False
    return event.message.round == round and not event.message.granted


def _is_same(one: Task, other: Task) -> bool:
    """Return whether two tasks are equal, so that one update answers both."""
    if (one.round, one.seed, one.last_accepted_round) != (
        other.round,
        other.seed,
        other.last_accepted_round,
    ):
        return False
    return bytes(CODEC.encode(one)) == bytes(CODEC.encode(other))
