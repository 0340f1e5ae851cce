"""Recording a run: every round to its folder, a checkpoint to resume from, a report at the end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedmx.report import write_report
from fedmx.round import Round
from fedmx.run import RunError, RunFolder, export_weights
from fedmx.run.events import EventLog
from fedmx.server import Server

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
        self.events.add_round(record)
        if round.round % self.every == 0 or round.round == self.last:
            self.folder.save_checkpoint(round.round, checkpoint, self.keep_last)


def recorded(
    server: Server, folder: RunFolder, *, every: int = 1, keep_last: int = 2
) -> Iterator[Round]:
    """Run `server` from where its folder says it is, and record it; yield each round.

    However the loop ends, the folder says so, and the run can be resumed unless it is done.
    """
    with ExitStack() as stack:
        stack.enter_context(folder.lock())
        checkpoint = folder.latest_checkpoint()
        if checkpoint is not None:
            for warning in checkpoint.warnings:
                log.warning("%s", warning)
            server.restore(checkpoint.state)
        folder.truncate_after(server.state.round)
        events = stack.enter_context(EventLog(folder.events_path, server.state.round))
        server.keeper = Recorder(folder, events, server.last, every, keep_last)
        try:
            with server:
                yield from server.rounds()
            export_model(server, folder)
        except GeneratorExit:
            _end(folder, "stopped", f"its caller left the loop after round {server.state.round}")
            raise
        except KeyboardInterrupt:
            _end(folder, "interrupted", f"interrupted after round {server.state.round}")
            raise
        except BaseException as error:
            _end(folder, "failed", f"{type(error).__name__}: {error}")
            raise
        folder.finish("done", server.reason)
        write_report([folder], folder.report_path)


def export_model(server: Server, folder: RunFolder) -> None:
    """Write the global model, one named tensor a parameter, its non-trainable ones included."""
    engine = server.compute.engine
    tensors = (*engine.layout, *engine.buffers_layout)
    layout = [(tensor.name, tensor.shape) for tensor in tensors]
    vector = np.concatenate([server.state.weights, server.state.buffers])
    export_weights(folder.model_path, layout, vector)


def _end(
    folder: RunFolder, status: Literal["stopped", "interrupted", "failed"], reason: str
) -> None:
    """Say how a run ended early; why it did matters more than that this cannot be written."""
    with contextlib.suppress(RunError):
        folder.finish(status, reason)
