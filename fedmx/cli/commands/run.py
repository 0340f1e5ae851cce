"""``fedmx run`` simulates an experiment file; ``fedmx resume`` goes on with the run of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.commands.server import check_network, run_deployed
from fedmx.cli.terminal.json_lines import say
from fedmx.cli.terminal.options import (
    AsJson,
    ExecutorName,
    ExperimentFile,
    Overrides,
    executor_override,
)
from fedmx.cli.terminal.permission import Modules, OwnModules, allowed_modules
from fedmx.cli.terminal.restart import restart_on

if TYPE_CHECKING:
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder


def run(
    file: ExperimentFile,
    set_: Overrides = None,
    executor: ExecutorName = None,
    module: Modules = None,
    own_modules: OwnModules = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything and say what the run would cost; run nothing."
        ),
    ] = False,
    as_json: AsJson = False,
    beside: Annotated[
        Path | None,
        typer.Option(hidden=True, help="Where the modules beside FILE are, if FILE is a copy."),
    ] = None,
) -> None:
    """Simulate an experiment on this machine."""
    from fedmx.experiment.names import check_names

    overrides = [*(set_ or []), *executor_override(executor)]
    check_names(file, overrides)
    own = (beside or file.parent).resolve()
    modules = allowed_modules(file, overrides, module, own_modules, own)

    from fedmx.experiment import Experiment

    experiment = Experiment.read(file, overrides, folder=own, modules=modules)
    restart_on(experiment.compute.bits)
    if dry_run:
        _show_estimate(experiment, as_json)
        return

    # Not before: this imports MXNet, and a wrong file should be shown at once.
    from fedmx.assembly.assembly import Assembly
    from fedmx.cli.commands.run_loop import print_document, run_loop
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.components.user_code import own_code
    from fedmx.run import RunFolder, gather_facts
    from fedmx.simulation.simulate import simulate

    with LogLines(), files_with_progress() as files:
        assembly = Assembly(experiment, files)
        server = simulate(assembly)

    def make_folder() -> RunFolder:
        facts = gather_facts(
            seed=experiment.seed,
            mode="simulation",
            digest=experiment.digest(),
            modules=str(own),
            code=own_code(own),
            parameters=server.state.weights.size,
            buffers=server.state.buffers.size,
            **assembly.facts(),
        )
        return RunFolder.create(
            experiment.run.folder, experiment.name, experiment.to_yaml(), facts, assembly.kept()
        )

    every = experiment.run.checkpoint.every
    show = print_document if as_json else None
    run_loop(server, make_folder, experiment, every=every, show=show)


def _show_estimate(experiment: Experiment, as_json: bool) -> None:
    """Check all parts of an experiment, and print what its simulation would cost."""
    from fedmx.assembly.assembly import Assembly
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.cli.terminal.estimate_lines import estimate_document, estimate_lines
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.simulation.estimate import estimate
    from fedmx.simulation.executors.build import require_portable
    from fedmx.simulation.simulate import simulate

    if experiment.executor.name != "serial":
        require_portable(experiment)
    serial = experiment.with_overrides(["executor=serial"])
    with LogLines(), files_with_progress() as files:
        assembly = Assembly(serial, files)
        with simulate(assembly):
            found = estimate(assembly)
    lines = [json.dumps(estimate_document(found))] if as_json else estimate_lines(found)
    for line in lines:
        typer.echo(line)


def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    executor: ExecutorName = None,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="In place of network.patience_s: how long a silent client is waited for.",
        ),
    ] = None,
    module: Modules = None,
    own_modules: OwnModules = False,
) -> None:
    """Go on with an interrupted run, with the same result."""
    from fedmx.experiment import Experiment
    from fedmx.run import RunError, RunFolder
    from fedmx.run.folder.kept_start import kept_start

    folder = RunFolder.open(path)
    if folder.status == "done":
        raise RunError(f"{path}: the run is done ({folder.reason}); there is nothing to resume")
    with folder.lock():
        pass  # a run in use is shown at once, not after all imports
    address, own = folder.facts.get("address"), folder.modules_path
    source = folder.path / "experiment.yaml"
    experiment = Experiment.parse(
        folder.experiment_yaml,
        str(source),
        # The address that its clients know; the system may have chosen the port.
        [
            *([f"network.address={json.dumps(address)}"] if isinstance(address, str) else []),
            *executor_override(executor),
            *([] if patience is None else [f"network.patience_s={patience!r}"]),
        ],
        folder=own,
        modules=allowed_modules(source, (), module, own_modules, own),
    )
    if experiment.digest() != folder.facts.get("digest"):
        raise RunError(
            f"{source}: this is not the experiment that the run began with; "
            "restore the file, or start a new run"
        )
    start = kept_start(folder)
    restart_on(experiment.compute.bits)
    _tell_other_instructions(folder.facts.get("instructions"))
    deployed = folder.facts.get("mode") == "server"
    if patience is not None and not deployed:
        raise RunError(f"{path}: --patience is for a deployed run, and this one is a simulation")
    if deployed:
        check_network(experiment.network)

    # As above.
    from fedmx.assembly.assembly import Assembly
    from fedmx.cli.commands.run_loop import run_loop
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.deployment.serve import serve
    from fedmx.simulation.simulate import simulate

    with LogLines(), files_with_progress() as files:
        assembly = Assembly(experiment, files, start_file=start)
        folder.check_data(assembly.data.dataset.name, assembly.data.sha256)
        server = serve(assembly, str(folder.facts["run"])) if deployed else simulate(assembly)
    _tell_other_code(folder)
    if deployed:
        run_deployed(server, folder, experiment)
    else:
        run_loop(server, folder, experiment, every=experiment.run.checkpoint.every)


def _tell_other_code(folder: RunFolder) -> None:
    """Say it if a run goes on with other code of the user's own than it began with."""
    from fedmx.components.user_code import own_code

    changed = folder.other_code(own_code(folder.modules_path))
    if changed:
        say(
            "other_code",
            f"{', '.join(changed)}: not as when the run began; the rounds from here on are made by "
            "other code, so that the run cannot be done again as a whole",
            files=changed,
        )


def _tell_other_instructions(before: object) -> None:
    """Say it if a run goes on with other instructions than it began with."""
    from layers.compute.bits import instructions

    now = instructions()
    if isinstance(before, str) and before != now:
        say(
            "other_instructions",
            f"the run began on the instructions {before}, and goes on here with {now}: the last "
            "bits of its result may differ (compute.bits: portable avoids it)",
            before=before,
            now=now,
        )
