"""Recording a run: every round to its folder, a checkpoint to resume from, a report at the end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedmx.report import write_report
from fedmx.run import RunError, RunFolder, export_weights
from fedmx.run.events import EventLog
from fedmx.server.round import Round
from fedmx.server.server import Server
from layers.logic import TooFewUpdates

log = logging.getLogger("fedmx.run")


@dataclass
class Recorder:
    """Writes rounds as they are concluded; the checkpoint last, so that it never is ahead.

    Attributes:
        every: rounds between checkpoints; the last round always has one.
        keep_last: how many checkpoints stay.
    """

    folder: RunFolder
    events: EventLog
    last: int
    every: int = 1
    keep_last: int = 2

    def keep(self, round: Round, checkpoint: Mapping[str, Any]) -> None:
        """Write one round."""
        record = round.record()
        self.folder.append_round(record)
        self.folder.append_clients(round.client_records())
        self.events.add_round(record, round.report.numbers)
        if round.round % self.every == 0 or round.round == self.last:
            self.folder.save_checkpoint(round.round, checkpoint, self.keep_last)


def recorded(
    server: Server,
    folder: RunFolder | Callable[[], RunFolder],
    *,
    every: int = 1,
    keep_last: int = 2,
) -> Generator[Round, None, None]:
    """Run `server` from where its folder says it is, and record it; yield each round.

    However the loop ends, the folder says so, and the run can be resumed unless it is done. An
    interruption (KeyboardInterrupt) between two rounds is known as one if it is thrown in here.

    Args:
        folder: of the run; a function makes it once the server is up, so that a server that cannot
            listen leaves no folder behind.
    """
    with ExitStack() as stack:
        if callable(folder):
            stack.enter_context(server)
            folder = folder()
            stack.enter_context(folder.lock())
        else:
            stack.enter_context(folder.lock())
            _restore(server, folder)
            stack.enter_context(server)
        folder.truncate_after(server.state.round)
        server.keep_assets(folder.assets_path)
        events = stack.enter_context(EventLog(folder.events_path, server.state.round))
        server.keeper = Recorder(folder, events, server.last, every, keep_last)
        try:
            yield from server.rounds()
            export_model(server, folder)
        except GeneratorExit:
            _end(folder, "stopped", f"its caller left the loop after round {server.state.round}")
            raise
        except KeyboardInterrupt:
            _end(folder, "interrupted", f"interrupted after round {server.state.round}")
            raise
        except TooFewUpdates as error:
            _explain(folder, error)
            _end(folder, "failed", f"{type(error).__name__}: {error}")
            raise
        except BaseException as error:
            _end(folder, "failed", f"{type(error).__name__}: {error}")
            raise
        folder.finish("done", server.reason or f"all {server.last} rounds were run")
        write_report([folder], folder.report_path)


def _restore(server: Server, folder: RunFolder) -> None:
    checkpoint = folder.latest_checkpoint()
    if checkpoint is not None:
        for warning in checkpoint.warnings:
            log.warning("%s", warning)
        server.restore(checkpoint.state)


def export_model(server: Server, folder: RunFolder) -> None:
    """Write the global model, one named tensor a parameter, its non-trainable ones included."""
    engine = server.compute.engine
    tensors = (*engine.layout, *engine.buffers_layout)
    layout = [(tensor.name, tensor.shape) for tensor in tensors]
    vector = np.concatenate([server.state.weights, server.state.buffers])
    export_weights(folder.model_path, layout, vector)


def _explain(folder: RunFolder, error: TooFewUpdates) -> None:
    """Say of each client why its update is missing; a resumed run forgets it again."""
    if error.report is not None:
        round = Round(error.report, accuracy=None, loss=None, seconds=0.0, elapsed_s=0.0)
        with contextlib.suppress(RunError):
            folder.append_clients(round.client_records())


def _end(
    folder: RunFolder, status: Literal["stopped", "interrupted", "failed"], reason: str
) -> None:
    """Say how a run ended early; why it did matters more than that this cannot be written."""
    with contextlib.suppress(RunError):
        folder.finish(status, reason)
