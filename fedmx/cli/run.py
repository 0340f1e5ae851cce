"""``fedmx run`` simulates an experiment file; ``fedmx resume`` continues the run in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.deploy import check_network, run_deployed
from fedmx.cli.options import (
    AllowVersion,
    AsJson,
    ExecutorName,
    ExperimentFile,
    Modules,
    Overrides,
    OwnModules,
    RunPath,
    executor_override,
    permitted,
)
from fedmx.cli.output import say
from fedmx.shell_line import shell_line
from fedmx.version import __version__, fits

if TYPE_CHECKING:
    from fedmx.experiment import Experiment
    from fedmx.run import RunFolder
    from fedmx.simulation.estimate import Estimate


def run(
    file: ExperimentFile,
    set_: Overrides = None,
    executor: ExecutorName = None,
    module: Modules = None,
    own_modules: OwnModules = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything and estimate the cost, without running."),
    ] = False,
    as_json: AsJson = False,
    beside: Annotated[
        Path | None,
        typer.Option(hidden=True, help="The folder of FILE's own modules, if FILE is a copy."),
    ] = None,
) -> None:
    """Simulate an experiment on this machine."""
    from fedmx.experiment import Experiment

    overrides = [*(set_ or []), *executor_override(executor)]
    own = (beside or file.parent).resolve()
    experiment = permitted(Experiment.read(file, overrides, folder=own), module, own_modules)
    if dry_run:
        _show_estimate(experiment, as_json)
        return

    from fedmx.assembly.assembly import Assembly
    from fedmx.assembly.run_folder import new_run_folder
    from fedmx.cli.datasets import files_with_progress
    from fedmx.cli.rounds import print_document, run_loop
    from fedmx.server.survey import normalised
    from fedmx.simulation.simulate import simulate

    with files_with_progress() as files:
        assembly = normalised(Assembly(experiment, files), simulate)
        server = simulate(assembly)

    def make_folder() -> RunFolder:
        return new_run_folder(assembly, "simulation", own)

    run_loop(server, make_folder, print_document if as_json else None)


def _show_estimate(experiment: Experiment, as_json: bool) -> None:
    """Check all parts of an experiment, and print the estimated cost of its simulation."""
    from fedmx.assembly.assembly import Assembly
    from fedmx.cli.datasets import files_with_progress
    from fedmx.cli.output import show_text
    from fedmx.server.survey import normalised
    from fedmx.simulation.estimate import estimate
    from fedmx.simulation.simulate import simulate
    from fedmx.simulation.workers import require_portable

    if experiment.executor.name != "serial":
        require_portable(experiment)
    serial = experiment.with_overrides(["executor=serial"])
    with files_with_progress() as files:
        assembly = normalised(Assembly(serial, files), simulate)
        with simulate(assembly):
            found = estimate(assembly)
    if as_json:
        typer.echo(json.dumps(estimate_document(found)))
    else:
        show_text(estimate_lines(found))


def resume(
    path: RunPath,
    executor: ExecutorName = None,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Overrides network.patience_s: how long to wait for a silent client.",
        ),
    ] = None,
    module: Modules = None,
    own_modules: OwnModules = False,
    allow_version: AllowVersion = False,
) -> None:
    """Continue an interrupted run; the result is the same."""
    from fedmx.run import RunError, RunFolder
    from fedmx.run.folder import kept_start

    folder = RunFolder.open(path)
    if folder.status == "done":
        records, more = folder.rounds(), ""
        if records:
            done = records[-1]["round"]
            words = ("fork", path, "--round", str(done), "--set", f"rounds={2 * done}")
            more = f"; for more rounds: {shell_line('fedmx', *words)}"
        raise RunError(f"{path}: the run is done ({folder.reason}): nothing to resume{more}")
    before = folder.facts.get("fedmx")
    if isinstance(before, str) and not fits(before) and not allow_version:
        raise RunError(
            f"{path}: the run began with fedmx {before}, and this is fedmx {__version__}, whose "
            f"results may differ; install fedmx {before}, or give --allow-version"
        )
    with folder.lock():
        pass  # report a run in use at once, not after all imports
    address = folder.facts.get("address")
    experiment = folder.experiment(
        [
            # The address that its clients know; the system may have chosen the port.
            *([f"network.address={json.dumps(address)}"] if isinstance(address, str) else []),
            *executor_override(executor),
            *([] if patience is None else [f"network.patience_s={patience!r}"]),
        ]
    )
    experiment = permitted(experiment, module, own_modules)
    folder.check_experiment(experiment)
    start = kept_start(folder)
    deployed = folder.facts.get("mode") == "server"
    if patience is not None and not deployed:
        raise RunError(f"{path}: --patience is for a deployed run, and this one is a simulation")
    if deployed:
        check_network(experiment.network)

    from fedmx.assembly.assembly import Assembly
    from fedmx.cli.datasets import files_with_progress
    from fedmx.cli.rounds import run_loop
    from fedmx.deployment.serve import serve
    from fedmx.simulation.simulate import simulate

    with files_with_progress() as files:
        assembly = Assembly(experiment, files, start_file=start)
        folder.check_data(assembly.data.dataset.name, assembly.data.sha256)
        if deployed:
            server = serve(assembly, str(folder.facts["run"]), any_version=allow_version)
        else:
            server = simulate(assembly)
    _tell_other_versions(folder, experiment)
    _tell_other_code(folder)
    (run_deployed if deployed else run_loop)(server, folder)


def _tell_other_code(folder: RunFolder) -> None:
    """Log a change of the user's own code since the run began."""
    from fedmx.components.user_code import own_code

    changed = folder.other_code(own_code(folder.modules_path))
    if changed:
        say(
            "other_code",
            f"{', '.join(changed)}: changed since the run began; later rounds use the new "
            "code, so the run as a whole cannot be replayed",
            files=changed,
        )


def _tell_other_versions(folder: RunFolder, experiment: Experiment) -> None:
    """Log what decides bits and has changed since the run began, and keep it in the folder."""
    from fedmx.history.recorded import facts_here, other_versions

    facts = {name: fact for name, fact in folder.facts.items() if name != "code"}
    found = other_versions(facts, facts_here(experiment))
    if found:
        with folder.lock():
            folder.note_resumed(found)
        say(
            "other_bits_possible",
            f"the run goes on with {', '.join(found)}: the last bits of its result may differ",
            differences=found,
        )


def estimate_document(found: Estimate) -> dict[str, Any]:
    """Return the estimate for ``--json``: sizes in bytes, times in seconds; None: unknown.

    ``round_bytes`` is the traffic of one round, ``bytes`` that of all, in both directions.
    """
    each = found.task_bytes + found.update_bytes
    round = None if found.cohort is None else each * found.cohort
    return {
        **vars(found),
        "samples": found.samples.tolist(),
        "round_bytes": round,
        "bytes": None if round is None else round * found.rounds,
        "seconds": found.seconds,
    }


def estimate_lines(found: Estimate) -> Iterator[str]:
    """Yield the lines of an estimate."""
    from fedmx.report.formats import duration, mebibytes, plain

    samples = found.samples
    low, high = int(samples.min()), int(samples.max())
    middle = sorted(samples.tolist())[len(samples) // 2]
    each = f"{low:,}" if low == high else f"{low:,} to {high:,} (median {middle:,})"
    yield f"clients: {len(samples):,} with {each} samples"
    chosen = "as many clients as the selector chooses after asking them"
    if found.cohort is not None:
        chosen = "1 client" if found.cohort == 1 else f"{found.cohort:,} clients"
    each, unit = f"each with {chosen}", "round"
    if found.concurrency is not None:
        each, unit = f"each after {found.cohort:,} updates", "version"
        each += f", with {found.concurrency:,} clients at work"
    yield f"{f'{unit}s:':8} {found.rounds:,}, {each}, of about {found.steps:,.0f} local steps"
    client = found.task_bytes + found.update_bytes
    line = f"{mebibytes(found.task_bytes)} down and {mebibytes(found.update_bytes)} up per client"
    if found.cohort is not None:
        round = client * found.cohort
        line += f"; about {mebibytes(round)} a {unit}, {mebibytes(round * found.rounds)} in all"
    yield f"bytes:   {line}"
    line = f"{mebibytes(found.process_bytes)} for data, model and one client in one process"
    if found.memory_bytes:
        kept = mebibytes(found.memory_bytes)
        line += (
            f"; hooks keep {kept} a client, {mebibytes(found.memory_bytes * len(samples))} in all"
        )
    yield f"memory:  {line}"
    one = (
        f"a local step takes {1000 * found.step_s:.3g} ms, an evaluation {found.evaluation_s:.2g} s"
    )
    total = "" if found.seconds is None else f"about {duration(found.seconds)} on one core; "
    if found.concurrency is not None:
        total += f"about {plain(1 / (found.steps * found.step_s))} updates/s; "
    yield f"time:    {total}{one}"
