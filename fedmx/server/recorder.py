"""Recording a run: each round in its folder, checkpoints to resume from, and its page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedmx.errors import FedmxError
from fedmx.experiment.sections import CheckpointSection
from fedmx.journal.chain import CHAIN, START, chained, model_hash
from fedmx.listing.page import renew_index
from fedmx.log import Log
from fedmx.monitoring.monitor import LiveFile
from fedmx.privacy.published import published
from fedmx.report import write_report
from fedmx.report.live import LivePage, write_elsewhere
from fedmx.run import RunError, RunFolder
from fedmx.run.checkpoint import Keep
from fedmx.run.events import EventLog
from fedmx.run.released import Released
from fedmx.server.evaluation import Evaluation
from fedmx.server.restoring import restore
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.server.step_back import summary
from fedmx.server.stop import after_last
from fedmx.server.tracebacks import Tracebacks
from fedmx.sweeps.folder import SweepFolder
from layers.logic import BrokenModel, TooFewUpdates

log = Log("fedmx.run")


@dataclass
class FolderRecorder:
    """Writes each round to the run's folder; the checkpoint last, so that it is never ahead.

    Attributes:
        folder: the run's folder.
        events: the TensorBoard log.
        last_round: the number of the last round, which always has a checkpoint.
        every: rounds between checkpoints.
        keep: which checkpoints are kept.
        released: the models that may have left the server; None: the run is not confidential.
    """

    folder: RunFolder
    events: EventLog
    last_round: int
    every: int = 1
    keep: Keep = field(default_factory=Keep)
    released: Released | None = None
    _link: str = field(init=False, repr=False)  # of the chain, after the last recorded round
    _tracebacks: Tracebacks = field(default_factory=Tracebacks, init=False, repr=False)
    _population: Mapping[int, int] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._link = _last_link(self.folder)

    def record(self, round: Round, checkpoint: Mapping[str, Any]) -> None:
        """Write one round, and a checkpoint if one is due.

        Raises:
            RunError: another model of this round may have left the server; nothing is written.
        """
        if self.released is not None:
            self.released.check(round.round, round.model_sha256)
        line = round.record()
        updates = [one for sent in round.update_blake3.values() for one in sent]
        self._link = chained(self._link, line, updates, round.model_sha256)
        line[CHAIN] = self._link
        self.folder.append_journal(round.journal.record(self._population))
        self._population = round.journal.population
        self.folder.append_round(line)
        self.folder.append_clients(self._tracebacks.recorded(round.client_records()))
        if round.evaluation.clients:
            self.folder.append_evaluations(
                {"round": round.round, **one} for one in round.evaluation.clients
            )
        if self.released is None:
            self.events.add_round(line, round.report.numbers)
        else:
            self.events.add_round(published(line))
        if self.keep.is_due(round.round, self.every) or round.round == self.last_round:
            self.folder.save_checkpoint(round.round, checkpoint, self.keep)
        if self.released is not None and round.epsilon is not None:
            self.released.note(round.round, round.model_sha256, round.epsilon)

    @property
    def checkpoint_rounds(self) -> Sequence[int]:
        """The rounds that have a checkpoint."""
        return self.folder.checkpoint_rounds

    def earlier(self, round: int) -> Mapping[str, Any] | None:
        """Return the newest whole checkpoint that was written before a round, if there is one."""
        checkpoint = self.folder.checkpoint_before(round)
        return None if checkpoint is None else checkpoint.state

    def step_back(self, round: int, checkpoint: Mapping[str, Any]) -> None:
        """Forget what came after `round`; the run goes on from this checkpoint of it.

        The checkpoint is written first. Whoever resumes in between finds the newer one, fails in
        the same round, and steps back to the same state.
        """
        one_more = replace(self.keep, last=self.keep.last + 1)
        self.folder.save_checkpoint(round, checkpoint, one_more)
        self.folder.truncate_after(round)
        self._link, self._population = _last_link(self.folder), None
        self.events.begin_after(round)


def recorded(
    server: Server,
    folder: RunFolder | Callable[[], RunFolder],
    *,
    every: int | None = None,
    keep: Keep | None = None,
) -> Generator[Round, None, None]:
    """Run `server` from the last checkpoint in its folder, and record it; yield each round.

    The folder records how the run ended; it can be resumed unless it is done. To record an
    interruption between two rounds, throw its KeyboardInterrupt into this generator.

    Args:
        server: the server to run.
        folder: the run's folder; or a function that makes it when the server listens, so that a
            server that cannot listen leaves no folder behind.
        every: rounds between checkpoints; None: as the experiment says, and in a deployment 1,
            since a deployed client keeps the state of its last round only.
        keep: which checkpoints are kept; None: as the experiment says.

    Raises:
        RunError: no checkpoint can be read, what a fork begins with is lost, or the folder cannot
            be written.
    """
    with ExitStack() as stack:
        if callable(folder):
            stack.enter_context(server)
            folder = folder()
            stack.enter_context(folder.lock())
        else:
            stack.enter_context(folder.lock())
            restore(server, folder)
            stack.enter_context(server)
        released = _released(server, folder)
        folder.truncate_after(server.state.round)
        if server.network.untrusted and server.state.round == 0:
            folder.draw_secret()
        events = stack.enter_context(EventLog(folder.events_path, server.state.round))
        given = _checkpoints(server)
        kept = keep or Keep(given.keep.last, given.keep.every)
        every = every or (1 if server.network.untrusted else given.every)
        recorder = FolderRecorder(folder, events, server.last_round, every, kept, released)
        server.record_in(folder, recorder)
        if server.operated is not None:
            stack.enter_context(server.operated(folder.path))
        if server.monitor is not None:
            stack.enter_context(LiveFile(folder.live_path, server.monitor.status))
        try:
            stack.enter_context(server.calling())
            # The report of a sweep is about all of its runs.
            has_page = not SweepFolder.is_one(folder.path.parent)
            with LivePage(lambda: write_elsewhere(folder.path), _page_every(server)) as page:
                for round in server.rounds():
                    if has_page and not server.reason:
                        page.show(round.round)
                    yield round
            server.save_model(folder.model_path)
        except GeneratorExit:
            _end(folder, "stopped", f"its caller left the loop after round {server.state.round}")
            raise
        except KeyboardInterrupt as interruption:
            how = f"interrupted {interruption}".strip()  # by a signal, or by an operator
            _end(folder, "interrupted", f"{how} after round {server.state.round}")
            raise
        except (TooFewUpdates, BrokenModel) as error:
            _explain(folder, error)
            _end(folder, "failed", f"{type(error).__name__}: {error}")
            raise
        except BaseException as error:
            _end(folder, "failed", f"{type(error).__name__}: {error}")
            raise
        reason = server.reason or after_last(server.last_round)
        stepped = summary(server.steps_back.steps)
        folder.finish("done", f"{reason}; {stepped}" if stepped else reason)
        if has_page:
            write_report([folder], folder.report_path)
        renew_index(folder.path.parent)


def _released(server: Server, folder: RunFolder) -> Released | None:
    """Return what a confidential run may have released, with the model that it goes on from.

    Raises:
        RunError: it is not known in full, or another model of the same round is in it.
    """
    if not server.confidential or server.account is None:
        return None
    released, round = Released(folder.path), server.state.round
    recorded = max((record["round"] for record in folder.rounds()), default=0)
    released.check_whole(max(recorded, round))
    if round:
        model = model_hash(server.state.weights, server.state.buffers)
        released.note(round, model, server.account.epsilon(round))
    return released


def _checkpoints(server: Server) -> CheckpointSection:
    return CheckpointSection() if server.experiment is None else server.experiment.run.checkpoint


def _page_every(server: Server) -> int | None:
    return None if server.experiment is None else server.experiment.run.report_every


def _last_link(folder: RunFolder) -> str:
    """Return the chain's link of the last recorded round."""
    link = START
    for record in folder.rounds():
        link = record.get(CHAIN, START)
    return link


def _explain(folder: RunFolder, error: TooFewUpdates | BrokenModel) -> None:
    """Record why each client's update is missing; a resumed run removes these records."""
    if error.report is not None:
        round = Round(error.report, Evaluation(), seconds=0.0, elapsed_s=0.0)
        with contextlib.suppress(RunError):
            folder.append_clients(round.client_records())


def _end(
    folder: RunFolder, status: Literal["stopped", "interrupted", "failed"], reason: str
) -> None:
    """Record how a run ended early, and show it on the page if the run has shown one.

    A failure to write must not hide the error that ended the run.
    """
    with contextlib.suppress(FedmxError):
        folder.finish(status, reason)
        if folder.report_path.exists():
            write_report([folder], folder.report_path)
        renew_index(folder.path.parent)
