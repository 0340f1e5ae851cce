"""A sweep from Python: `fedmx.sweep`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedmx.assembly.assembly import Assembly
from fedmx.assembly.logic import preset_of
from fedmx.components.engines import MODULES
from fedmx.components.user_code import NamedCode, is_allowed, named_code
from fedmx.errors import ExperimentError, FedmxError
from fedmx.experiment.model import Experiment
from fedmx.experiment.reader import read_text
from fedmx.quantities import Quantity, metrics_of
from fedmx.report.groups import check_target, easiest
from fedmx.report.summary import read_settings
from fedmx.run import RunError
from fedmx.run.durable import cannot_write
from fedmx.sweeps.cells import Axis, axis_of, cells_of, check_axes, check_overrides, runs_of
from fedmx.sweeps.folder import SweepFolder
from fedmx.sweeps.processes import Options, RunProgress, Show, SweepProgress, run_all
from fedmx.sweeps.result import SweepResult
from layers.compute.bits import cores

SEEDS = 6  # the fewest that give every interval; see fedmx.report.statistics


def sweep(
    what: Experiment | str | os.PathLike[str],
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | None = None,
    *,
    target: float | None = None,
    at_once: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    modules: Collection[str] = (),
    executor: str | None = None,
) -> SweepResult:
    """Run an experiment with each combination of values, each with the same seeds.

    ::

        result = fedmx.sweep(
            "mnist.yaml", {"logic.preset": ["fedavg", "fedprox"]}, seeds=10, target=0.97
        )
        result.table()  # or result.to_pandas()
        result.statistics()["comparisons"]

    Each run is a separate process. A run that fails does not end the others; see
    `SweepResult.failed`. After an interruption, call it again with the sweep's folder.

    Args:
        what: an experiment, its file, or the folder of a sweep to resume.
        vary: the values of each setting, by its path; not for a folder.
        seeds: the number of seeds of each cell, from the experiment's own upwards. None: six, or
            the seeds of the folder; a larger number adds seeds to a folder.
        target: the value of the metric to which rounds and bytes are counted; None: the easiest one
            of ``stop.accuracy`` or ``stop.metric`` of the cells.
        at_once: the number of parallel processes; None: one for each processor.
        folder: the parent of the sweep's folder; None: the experiment's ``run.folder``.
        overrides: ``PATH=VALUE`` texts, as after ``--set``; not for a folder.
        modules: the modules whose code a file may name; an `Experiment` brings its own.
        executor: replaces the experiment's, as after ``--executor``.

    Raises:
        FedmxError: a cell is not a valid experiment, or the sweep cannot begin or resume.
        KeyboardInterrupt: the processes have ended in an orderly way.
    """
    if not isinstance(what, Experiment) and SweepFolder.is_one(Path(what)):
        if vary is not None or overrides:
            raise FedmxError(f"{os.fspath(what)}: the sweep has its settings; leave vary out")
        sweep_folder = SweepFolder.open(Path(what))
        _check_code(sweep_folder, modules)
        extend(sweep_folder, seeds, target)
    else:
        if isinstance(what, Experiment):
            what.require_portable()
            parts = what.components
            modules = {*modules, *(c.name.partition(":")[0] for c in parts if ":" in c.name)}
            text, source = what.to_yaml(), "experiment"
            beside = next((c.source.folder for c in parts if c.source.folder), Path.cwd())
        else:
            text, source = read_text(what), os.fspath(what)
            beside = Path(what).resolve().parent
        sweep_folder = begin(
            text,
            source,
            [axis_of(path, values) for path, values in (vary or {}).items()],
            seeds=seeds,
            target=target,
            overrides=overrides,
            modules=modules,
            beside=beside,
            folder=None if folder is None else Path(folder),
        )
    return go_on(sweep_folder, modules=modules, at_once=at_once, executor=executor)


def begin(
    text: str,
    source: str,
    axes: Sequence[Axis],
    *,
    seeds: int | None,
    target: float | None,
    overrides: Sequence[str],
    modules: Collection[str],
    beside: Path,
    folder: Path | None = None,
) -> SweepFolder:
    """Check each cell of an experiment and create the sweep's folder; nothing runs yet.

    Args:
        text: the content of the experiment file.
        source: the name of the file in messages.
        axes: the settings that vary.
        seeds: see `sweep`.
        target: see `sweep`.
        overrides: see `sweep`.
        modules: the modules whose code the text may name.
        beside: the folder of the experiment's own modules.
        folder: the parent of the sweep's folder.

    Raises:
        FedmxError: a cell is not valid, two are the same, or the folder cannot be created.
    """
    check_axes(axes)
    check_overrides(axes, overrides)
    cells = cells_of(axes)
    experiments = [
        Experiment.parse(
            text, source, overrides, folder=beside, modules=modules, varied=cell.overrides
        )
        for cell in cells
    ]
    for one in experiments:
        preset_of(one)  # checks settings of the user's code, which are not in an index
    digests: dict[str, int] = {}
    for number, one in enumerate(experiments):
        other = digests.setdefault(one.digest(), number)
        if other != number:
            raise ExperimentError(
                f"--vary: the cells {cells[other]} and {cells[number]} are the same experiment"
            )
    first = experiments[0].seed
    chosen = range(first, first + _seeds(SEEDS if seeds is None else seeds))
    runs_of(cells, chosen)
    if target is not None:
        check_target(_metric(experiments[0]), target)
    elif any(one.stop.is_set for one in experiments):
        settings = [read_settings(one.to_yaml()) for one in experiments]
        target = easiest(_metric(experiments[0]), settings)
    return SweepFolder.create(
        folder or experiments[0].run.folder,
        experiments[0].name,
        text,
        axes=axes,
        seeds=chosen,
        overrides=overrides,
        modules=beside,
        target=target,
    )


def extend(folder: SweepFolder, seeds: int | None, target: float | None) -> None:
    """Add seeds to a sweep, remove seeds that have not begun, or set its target.

    Raises:
        FedmxError: more seeds have begun, there are too many runs, or the target is not a value of
            the metric.
        RunError: it cannot be written.
    """
    if target is not None:
        check_target(_metric(next(iter(experiments_of(folder).values()))), target)
    of = folder.manifest
    changed = of if target is None else replace(of, target=target)
    if seeds is not None:
        chosen = range(of.seeds[0], of.seeds[0] + _seeds(seeds))
        runs_of(folder.cells, chosen)
        _check_begun(folder, chosen)
        changed = replace(changed, seeds=tuple(chosen))
    if changed != of:
        with folder.lock():
            folder.manifest = changed
            try:
                folder.save()
            except OSError as error:
                raise RunError(cannot_write(folder.path, error)) from None


def _metric(experiment: Experiment) -> Quantity:
    """Return the metric that stands for the models of an experiment."""
    assembly = Assembly(experiment)
    return metrics_of(assembly.metrics, assembly.data.targets)[0]


def _check_begun(folder: SweepFolder, chosen: Sequence[int]) -> None:
    """Check that no run with another seed has begun.

    Raises:
        FedmxError: one has.
    """
    if len(chosen) >= len(folder.manifest.seeds):
        return
    begun = [one.run.seed for one in SweepResult.of(folder).states if one.state != "waiting"]
    least = max(begun, default=chosen[0]) - chosen[0] + 1
    if least > len(chosen):
        raise FedmxError(f"{folder.path}: {least} seeds have begun; give {least} or more")


def go_on(
    folder: SweepFolder,
    *,
    modules: Collection[str] = (),
    at_once: int | None = None,
    executor: str | None = None,
    show: Show = lambda progress, ended: None,
) -> SweepResult:
    """Run all runs that are not done, and return the result.

    Args:
        folder: of the sweep.
        modules: the modules whose code the experiment may name.
        at_once: see `sweep`.
        executor: see `sweep`.
        show: shows the progress.

    Raises:
        FedmxError: the experiment was changed, or another process runs the sweep.
        KeyboardInterrupt: the processes have ended in an orderly way.
    """
    if at_once is not None and at_once < 1:
        raise FedmxError(f"at_once: must be at least 1, not {at_once}")
    result = SweepResult.of(folder)
    if result.done:
        result.save_table()
        return result
    with folder.lock():
        folder.check_experiment()
        experiments = experiments_of(folder, modules)
        beside = _fit_beside(next(iter(experiments.values())), executor)
        runs = [
            RunProgress.of(one, experiments[one.run.cell.number].rounds) for one in result.states
        ]
        may_end_early = any(one.stop.is_set for one in experiments.values())
        engines = sorted({one.compute.engine for one in experiments.values()})
        imported = [module for engine in engines for module in MODULES[engine]]
        options = Options(at_once or beside, sorted(modules), executor, imported)
        try:
            run_all(folder, SweepProgress(runs, options.at_once, may_end_early), options, show)
        finally:
            result = SweepResult.of(folder)
            result.save_table()
    return result


def code_of(folder: SweepFolder) -> list[NamedCode]:
    """Return the code outside fedmx that a sweep's cells name.

    Raises:
        ExperimentError: the experiment cannot be read.
    """
    experiments = experiments_of(folder).values()
    return [one for experiment in experiments for one in named_code(experiment.components)]


def _check_code(folder: SweepFolder, modules: Collection[str]) -> None:
    """Check that only allowed code is named; the folder may come from somebody else.

    Raises:
        ExperimentError: the sweep names such code.
    """
    allowed = frozenset(modules)
    names = dict.fromkeys(one.name for one in code_of(folder) if not is_allowed(one.name, allowed))
    if names:
        raise ExperimentError(
            f"{folder.path}: {', '.join(names)} is not fedmx's code, and would run; "
            "if you trust it, name its module in modules"
        )


def experiments_of(folder: SweepFolder, modules: Collection[str] = ()) -> dict[int, Experiment]:
    """Return the experiment of each cell by its number.

    Args:
        folder: of the sweep.
        modules: the modules whose code the experiments may name.
    """
    text = read_text(folder.experiment_path)
    of = folder.manifest
    return {
        cell.number: Experiment.parse(
            text,
            str(folder.experiment_path),
            of.overrides,
            folder=Path(of.modules),
            modules=modules,
            varied=cell.overrides,
        )
        for cell in folder.cells
    }


def _fit_beside(experiment: Experiment, executor: str | None) -> int:
    """Return how many runs of a sweep fit on this machine in parallel."""
    if (executor is not None and executor != "serial") or experiment.executor.name != "serial":
        return 1  # each run has its own workers
    return cores()


def _seeds(number: int) -> int:
    if number < 1:
        raise FedmxError(f"seeds: must be at least 1, not {number}")
    return number
