"""The loop over a server's rounds: each is recorded and shown, and at the end the result."""

from __future__ import annotations

import bdb
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import typer

from fedmx.cli.terminal.error_text import error_text
from fedmx.cli.terminal.interrupts import Interrupted
from fedmx.cli.terminal.permission import options
from fedmx.cli.terminal.progress import RoundProgress
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.report.quantities import duration, percent
from fedmx.run import RunFolder
from fedmx.run.checkpoint import Keep
from fedmx.run.json_lines import plain
from fedmx.server.recorder import recorded
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.shell_line import shell_line
from layers.logic import BrokenModel


@dataclass(frozen=True)
class Result:
    """The end of a run.

    Attributes:
        folder: the run folder.
        accuracy: of the last model, from 0 to 1.
        loss: of the last model.
    """

    folder: RunFolder
    accuracy: float
    loss: float


def run_loop(
    server: Server,
    folder: RunFolder | Callable[[], RunFolder],
    experiment: Experiment,
    *,
    every: int,
    show: Callable[[Result], None] | None = None,
) -> None:
    """Run all rounds of a server; record and show each, and print where the results are.

    Args:
        server: the server, simulated or deployed.
        folder: the run folder, or a function that makes it when the first round begins.
        experiment: the server's experiment.
        every: after how many rounds a checkpoint is written.
        show: prints the result; None: as lines.

    Raises:
        Interrupted: a signal ended the run.
        FedmxError: the run cannot go on; the text says how to resume it.
    """
    opened: list[RunFolder] = []
    progress = RoundProgress(
        server.last_round, server.state.round, may_end_early=experiment.stop.is_set
    )

    def open_folder() -> RunFolder:
        opened.append(folder() if callable(folder) else folder)
        progress.say("run_folder", f"run folder: {opened[0].path}", path=str(opened[0].path))
        return opened[0]

    kept = experiment.run.checkpoint.keep
    rounds = recorded(
        server,
        open_folder if callable(folder) else open_folder(),
        every=every,
        keep=Keep(kept.last, kept.every),
    )
    last: Round | None = None
    try:
        with progress:
            for last in rounds:
                progress.show(last, opened[0])
    except KeyboardInterrupt as interruption:
        if not opened:
            raise
        with contextlib.suppress(KeyboardInterrupt):  # between two rounds nobody else handles it
            rounds.throw(interruption)
        if opened[0].status != "done":
            raise _interrupted(server, opened[0]) from None
        raise
    except Exception as error:
        if opened and _is_debugger_left(error):
            raise _interrupted(server, opened[0]) from None
        text = error_text(error)
        if text is None or not opened or server.recorder is None:
            raise  # a fault, or the run did not begin
        is_hopeless = isinstance(error, BrokenModel) and error.report.round == 1
        raise FedmxError(text if is_hopeless else f"{text}{_hint(opened[0])}") from error
    (show or _print_result)(_result(server, opened[0], last))


def print_document(result: Result) -> None:
    """Print the result of a run as a JSON document."""
    folder = result.folder
    found = {
        "folder": str(folder.path),
        "state": folder.status,
        "reason": folder.reason,
        "rounds": folder.rounds()[-1]["round"],
        "accuracy": result.accuracy,
        "loss": result.loss,
        "model": str(folder.model_path),
        "report": str(folder.report_path),
    }
    typer.echo(json.dumps(plain(found, "the result")))


def _hint(folder: RunFolder) -> str:
    """Return how to go on with a run that has ended early, or with the report of one that is done.

    The command has what allows the code that the run named. Without its files there is no command:
    they were removed, moved, or are relative to a folder that is not the working directory any
    more. That must not hide what ended the run.
    """
    from fedmx.experiment.own_code import named_code

    try:
        if folder.status == "done":
            words = ["report"]
        else:
            code = named_code(folder.path / "experiment.yaml", (), folder.modules_path)
            words = ["resume", *options(code).split()]
    except (FedmxError, OSError):
        return ""
    return f"; go on with: {shell_line('fedmx', words[0], folder.path, *words[1:])}"


def _interrupted(server: Server, folder: RunFolder) -> Interrupted:
    return Interrupted(f"interrupted {_last_round_text(server)}{_hint(folder)}")


def _is_debugger_left(error: BaseException | None) -> bool:
    """Return whether an error is that of a debugger of the user's own, which was left by ``q``."""
    while error is not None and not isinstance(error, bdb.BdbQuit):
        error = error.__cause__
    return error is not None


def _last_round_text(server: Server) -> str:
    return f"after round {server.state.round}" if server.state.round else "before round 1 was done"


def _result(server: Server, folder: RunFolder, last: Round | None) -> Result:
    if last is None or last.accuracy is None or last.loss is None:
        return Result(folder, *server.evaluate())
    return Result(folder, last.accuracy, last.loss)


def _print_result(result: Result) -> None:
    folder = result.folder
    text = f"accuracy {percent(result.accuracy)}, loss {result.loss:.4f}"
    records = folder.rounds()
    if records and records[-1].get("virtual"):
        text += f", after {duration(records[-1].get('clock_elapsed_s'))} of virtual time"
    typer.echo(f"{folder.reason}: {text}")
    typer.echo(f"model:  {folder.model_path}")
    typer.echo(f"report: {folder.report_path}")
