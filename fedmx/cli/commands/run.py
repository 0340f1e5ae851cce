"""``fedmx run`` and ``fedmx resume``: a simulation from its file, or any run from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.commands.server import check
from fedmx.cli.terminal.options import ExecutorName, ExperimentFile, Overrides, executor_override


def run(file: ExperimentFile, set_: Overrides = None, engine: ExecutorName = None) -> None:
    """Simulate an experiment on this machine."""
    from fedmx.experiment import Experiment

    experiment = Experiment.read(file, [*(set_ or []), *executor_override(engine)])

    from fedmx.assembly.assembly import (
        Assembly,  # MXNet takes two seconds: what is wrong is said before
    )
    from fedmx.cli.commands.run_loop import run_loop
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.run import RunFolder, gather_facts
    from fedmx.simulation.simulate import simulate

    with files_with_progress() as files:
        server = simulate(Assembly(experiment, files))

    def make() -> RunFolder:
        facts = gather_facts(
            seed=experiment.seed,
            mode="simulation",
            digest=experiment.digest(),
            modules=str(file.resolve().parent),
            parameters=server.state.weights.size,
            buffers=server.state.buffers.size,
        )
        return RunFolder.create(experiment.run.folder, experiment.name, experiment.to_yaml(), facts)

    run_loop(server, make, experiment, every=experiment.run.checkpoint.every)


def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    engine: ExecutorName = None,
) -> None:
    """Go on with a run that was interrupted, as if it had not been."""
    from fedmx.experiment import Experiment
    from fedmx.run import RunError, RunFolder

    folder = RunFolder.open(path)
    if folder.status == "done":
        raise RunError(f"{path}: the run is done ({folder.reason}); there is nothing to resume")
    with folder.lock():
        pass  # it is in use: say so now rather than when everything is loaded
    modules, address = folder.facts.get("modules"), folder.facts.get("address")
    source = folder.path / "experiment.yaml"
    experiment = Experiment.parse(
        folder.experiment_yaml,
        str(source),
        # Where its clients look for it, also if the system chose the port.
        [
            *([f"network.address={json.dumps(address)}"] if isinstance(address, str) else []),
            *executor_override(engine),
        ],
        folder=Path(modules) if isinstance(modules, str) else None,
    )
    if experiment.digest() != folder.facts.get("digest"):
        raise RunError(
            f"{source}: it is not the experiment that the run began with; "
            "put it back, or run it anew"
        )
    deployed = folder.facts.get("mode") == "server"
    if deployed:
        check(experiment.network)

    from fedmx.assembly.assembly import Assembly  # as above
    from fedmx.cli.commands.run_loop import run_loop
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.deployment.serve import serve
    from fedmx.simulation.simulate import simulate

    with files_with_progress() as files:
        assembly = Assembly(experiment, files)
        server = serve(assembly, str(folder.facts["run"])) if deployed else simulate(assembly)
    # A deployed client keeps what the last round left it with, and no more.
    run_loop(server, folder, experiment, every=1 if deployed else experiment.run.checkpoint.every)
