"""The loop over a server's rounds: each is recorded and shown, and at the end the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import typer

from fedmx.cli.terminal.error_text import error_text
from fedmx.cli.terminal.interrupts import Interrupted
from fedmx.cli.terminal.json_lines import say
from fedmx.cli.terminal.permission import options
from fedmx.cli.terminal.progress import RoundProgress
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.report.records.quantities import duration, percent
from fedmx.run import RunFolder
from fedmx.server.recorder import recorded
from fedmx.server.round import Round
from fedmx.server.server import Server


def run_loop(
    server: Server,
    folder: RunFolder | Callable[[], RunFolder],
    experiment: Experiment,
    *,
    every: int,
) -> None:
    """Run all rounds of a server; record and show each, and print where the results are.

    Args:
        server: the server, simulated or deployed.
        folder: the run folder, or a function that makes it when the first round begins.
        experiment: the server's experiment.
        every: after how many rounds a checkpoint is written.

    Raises:
        Interrupted: a signal ended the run.
        FedmxError: the run cannot go on; the text says how to resume it.
    """
    opened: list[RunFolder] = []

    def open_folder() -> RunFolder:
        opened.append(folder() if callable(folder) else folder)
        say("run_folder", f"run folder: {opened[0].path}", path=str(opened[0].path))
        return opened[0]

    rounds = recorded(
        server,
        open_folder if callable(folder) else open_folder(),
        every=every,
        keep_last=experiment.run.checkpoint.keep,
    )
    last: Round | None = None
    try:
        with RoundProgress(server.last_round) as progress:
            for last in rounds:
                progress.show(last, opened[0])
    except KeyboardInterrupt as interruption:
        if not opened:
            raise
        with contextlib.suppress(KeyboardInterrupt):  # between two rounds nobody else handles it
            rounds.throw(interruption)
        if opened[0].status != "done":
            raise Interrupted(
                f"interrupted {_last_round_text(server)}; go on with: {_resume_command(opened[0])}"
            ) from None
        raise
    except Exception as error:
        text = error_text(error)
        if text is None or not opened or server.recorder is None:
            raise  # a fault, or the run did not begin
        command = _resume_command(opened[0])
        raise FedmxError(f"{text}; go on with: {command}") from error
    _print_result(server, opened[0], last)


def _resume_command(folder: RunFolder) -> str:
    """Return the command that resumes a run, with what allows the code that it has been running."""
    from fedmx.experiment.own_code import named_code

    own = folder.facts.get("modules")
    place = Path(own) if isinstance(own, str) else None
    code = named_code(folder.path / "experiment.yaml", (), place)
    return " ".join(["fedmx resume", str(folder.path), *options(code).split()])


def _last_round_text(server: Server) -> str:
    return f"after round {server.state.round}" if server.state.round else "before round 1 was done"


def _print_result(server: Server, folder: RunFolder, last: Round | None) -> None:
    if last is None or last.accuracy is None or last.loss is None:
        accuracy, loss = server.evaluate()
    else:
        accuracy, loss = last.accuracy, last.loss
    result = f"accuracy {percent(accuracy)}, loss {loss:.4f}"
    records = folder.rounds()
    if records and records[-1].get("virtual"):
        result += f", after {duration(records[-1].get('clock_elapsed_s'))} of virtual time"
    typer.echo(f"{folder.reason}: {result}")
    typer.echo(f"model:  {folder.model_path}")
    typer.echo(f"report: {folder.report_path}")
