"""``fedmx sweep``: an experiment with varied settings, each cell with the same seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.options import (
    AsJson,
    ExecutorName,
    Modules,
    Overrides,
    OwnModules,
    allowed_modules,
    executor_override,
    options,
)
from fedmx.cli.output import say, show_text
from fedmx.cli.process import Interrupted
from fedmx.errors import FedmxError
from fedmx.shell_line import shell_line

if TYPE_CHECKING:
    from fedmx.sweeps.folder import SweepFolder
    from fedmx.sweeps.result import SweepResult


def sweep(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="The experiment file (YAML), or the folder of a sweep to continue.",
            show_default=False,
        ),
    ],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUE,VALUE",
            help="The values of a setting, e.g. logic.preset=fedavg,fedprox; may be repeated. "
            "The values of the first setting are compared.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Seeds of each cell: the experiment's seed and those after it.  [default: 6]",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="Count rounds and bytes until the metric has this value, e.g. 0.98.",
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many runs are active at the same time.  [default: one for each processor]",
        ),
    ] = None,
    set_: Overrides = None,
    executor: ExecutorName = None,
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment with varied settings and the same seeds."""
    executor_override(executor)  # raises for an unknown executor
    is_folder = (what / "sweep.json").is_file()
    if is_folder and (vary or set_):
        raise FedmxError(f"{what}: a sweep's settings are fixed; omit --vary and --set")
    from fedmx.listing.page import renew_index

    folder = _open(what) if is_folder else None
    if folder is None:
        folder, modules = _begin(what, vary, seeds, target, set_, module, own_modules)
        say("sweep_folder", f"sweep folder: {folder.path}", path=str(folder.path))
    else:
        from fedmx.sweeps.sweep import extend

        modules = _allowed(folder, module, own_modules)
        extend(folder, seeds, target)
    result = _run(folder, modules, at_once, executor)
    page = result.save_page()
    renew_index(folder.path.parent)
    if as_json:
        document = {
            "folder": str(folder.path),
            "report": None if page is None else str(page),
            "target": result.target,
            **({} if result.epsilon is None else {"epsilon": result.epsilon}),
            "table": result.table(),
            **result.statistics(),
        }
        typer.echo(json.dumps(document))
    else:
        from fedmx.cli.sweep_output import show_result

        show_result(result)
        if (spent := result.epsilon) is not None:
            text = f"all runs together spend epsilon {spent:.4f}, for the sum of their deltas"
            show_text([f"privacy: {text}"])
        typer.echo(f"table:  {folder.table_path}")
        if page is not None:
            typer.echo(f"report: {page}")
    tell_failures(result)


def _open(path: Path) -> SweepFolder:
    from fedmx.sweeps.folder import SweepFolder

    return SweepFolder.open(path)


def _begin(
    file: Path,
    vary: list[str] | None,
    seeds: int | None,
    target: float | None,
    set_: list[str] | None,
    module: list[str] | None,
    own_modules: bool,
) -> tuple[SweepFolder, set[str]]:
    """Check the cells, create the sweep's folder, and return the modules that may be imported."""
    from fedmx.experiment import Experiment
    from fedmx.sweeps.cells import cells_of, check_axes, read_axis

    overrides = list(set_ or [])
    axes = [read_axis(text) for text in vary or ()]
    check_axes(axes)
    modules: set[str] = set()
    for cell in cells_of(axes):
        experiment = Experiment.read(file, [*overrides, *cell.overrides])
        modules |= allowed_modules(experiment, [*(module or ()), *modules], own_modules)

    from fedmx.experiment.reader import read_text
    from fedmx.sweeps.sweep import begin

    folder = begin(
        read_text(file),
        str(file),
        axes,
        seeds=seeds,
        target=target,
        overrides=overrides,
        modules=modules,
        beside=file.resolve().parent,
    )
    return folder, modules


def _allowed(folder: SweepFolder, module: list[str] | None, own_modules: bool) -> set[str]:
    """Return the modules that a continued sweep may import."""
    from fedmx.sweeps.sweep import experiments_of

    modules = set(module or ())
    for experiment in experiments_of(folder).values():
        modules |= allowed_modules(experiment, sorted(modules), own_modules, typed=False)
    return modules


def _run(
    folder: SweepFolder, modules: set[str], at_once: int | None, executor: str | None
) -> SweepResult:
    from fedmx.cli.sweep_output import SweepLines
    from fedmx.sweeps.sweep import go_on

    try:
        with SweepLines() as lines:
            return go_on(
                folder, modules=modules, at_once=at_once, executor=executor, show=lines.show
            )
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; continue with: {_again(folder)}") from None


def tell_failures(result: SweepResult) -> None:
    """Report the failed or unfinished runs of a sweep.

    Raises:
        FedmxError: there are some.
    """
    if result.done:
        return
    if not result.failed:
        open_ = sum(state.state != "done" for state in result.states)
        raise FedmxError(
            f"{open_} of {len(result.states)} runs are not done; continue with: "
            f"{_again(result.folder)}"
        )
    from fedmx.cli.output import one_line

    for state in result.failed:
        say(
            "run_failed",
            f"failed: {state.run}: {one_line(state.reason)}",
            cell=state.run.cell.settings,
            seed=state.run.seed,
            reason=state.reason,
            log=str(result.folder.log_path(state.run)),
        )
    text = f"{len(result.failed)} of {len(result.states)} runs failed"
    waiting = sum(state.state == "waiting" for state in result.states)
    if waiting:
        text += f"; {waiting} other runs of their cells were not started"
    raise FedmxError(
        f"{text}; their logs are in {result.folder.path / 'logs'}; "
        f"run them again with: {_again(result.folder)}"
    )


def _again(folder: SweepFolder) -> str:
    """Return the command that continues a sweep and allows the same code."""
    from fedmx.sweeps.sweep import code_of

    return shell_line("fedmx", "sweep", folder.path, *options(code_of(folder)).split())
