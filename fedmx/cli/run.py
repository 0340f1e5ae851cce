"""``fedmx run`` and ``fedmx resume``: a simulation from its file, or any run from its folder."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.options import ExperimentFile, Overrides

if TYPE_CHECKING:
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder
    from fedmx.server import Server


def run(file: ExperimentFile, set_: Overrides = None) -> None:
    """Simulate the experiment in FILE on this machine."""
    from fedmx.assembly import Assembly
    from fedmx.cli.downloads import files_with_progress
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder, gather_facts
    from fedmx.simulation import simulate

    experiment = Experiment.read(file, set_ or [])
    server = simulate(Assembly(experiment, files_with_progress()))
    facts = gather_facts(
        seed=experiment.seed,
        mode="simulation",
        digest=experiment.digest(),
        modules=str(file.resolve().parent),
    )
    folder = RunFolder.create(experiment.run.folder, experiment.name, experiment.to_yaml(), facts)
    drive(server, folder, experiment)


def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
) -> None:
    """Go on with a run that was interrupted, as if nothing had happened."""
    from fedmx.assembly import Assembly
    from fedmx.deployment import serve
    from fedmx.experiment import Experiment
    from fedmx.run import RunError, RunFolder
    from fedmx.simulation import simulate

    folder = RunFolder.open(path)
    if folder.status == "done":
        raise RunError(f"{path}: the run is done ({folder.reason}); there is nothing to resume")
    modules = folder.facts.get("modules")
    experiment = Experiment.parse(
        folder.experiment_yaml,
        str(folder.path / "experiment.yaml"),
        folder=Path(modules) if isinstance(modules, str) else None,
    )
    if experiment.digest() != folder.facts.get("digest"):
        raise RunError(
            f"{folder.path / 'experiment.yaml'}: it is not the experiment that the run began with; "
            "put it back, or run it anew"
        )
    assembly = Assembly(experiment)
    if folder.facts.get("mode") == "server":
        server = serve(assembly, str(folder.facts["run"]))
    else:
        server = simulate(assembly)
    drive(server, folder, experiment)


def drive(server: Server, folder: RunFolder, experiment: Experiment) -> None:
    """Run `server` to its end, recording and showing its rounds; say where everything is."""
    from fedmx.cli.progress import RoundProgress
    from fedmx.record import recorded

    checkpoint = experiment.run.checkpoint
    # A deployed client keeps what the last round left it with, and no more.
    every = checkpoint.every if folder.facts.get("mode") == "simulation" else 1
    typer.echo(f"run folder: {folder.path}", err=True)
    with RoundProgress(server.last) as progress, _terminated_as_interrupted():
        try:
            for round in recorded(server, folder, every=every, keep_last=checkpoint.keep):
                progress.show(round)
        except KeyboardInterrupt:
            typer.echo(f"interrupted; go on with: fedmx resume {folder.path}", err=True)
            raise typer.Exit(130) from None
    accuracy, loss = server.evaluate()
    typer.echo(f"{server.reason}: accuracy {accuracy:.4f}, loss {loss:.4f}")
    typer.echo(f"model:  {folder.model_path}")
    typer.echo(f"report: {folder.report_path}")


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Take SIGTERM, as a service manager sends it, for Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
