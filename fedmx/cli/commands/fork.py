"""``fedmx fork``: another future of a run, from one of its rounds on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.terminal.json_lines import say
from fedmx.cli.terminal.options import AsJson, ExecutorName, Overrides, executor_override
from fedmx.cli.terminal.permission import Modules, OwnModules, allowed_modules
from fedmx.cli.terminal.restart import restart_on

if TYPE_CHECKING:
    from fedmx.cli.commands.run_loop import Result


def fork(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    round: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="The last round that both have. [default: the last one before the clients of "
            "--without took part]",
            show_default=False,
        ),
    ] = None,
    set_: Overrides = None,
    without: Annotated[
        list[int] | None,
        typer.Option(metavar="CLIENT", min=0, help="A client that takes no part; may be repeated."),
    ] = None,
    executor: ExecutorName = None,
    as_json: AsJson = False,
    module: Modules = None,
    own_modules: OwnModules = False,
) -> None:
    """Give a run another future from one of its rounds on."""
    from fedmx.run import RunFolder

    folder = RunFolder.open(path)
    overrides = [*(set_ or []), *executor_override(executor)]
    source = folder.path / "experiment.yaml"
    place = folder.modules_path
    # What the run names is needed as well where the fork does not name it any more.
    modules = allowed_modules(source, (), module, own_modules, place)
    modules |= allowed_modules(source, overrides, module, own_modules, place)

    from fedmx.experiment import Experiment

    text = folder.experiment_yaml
    experiment = Experiment.parse(text, str(source), folder=place, modules=modules)
    restart_on(experiment.compute.bits)

    # Not before: this imports MXNet, and a wrong folder should be shown at once.
    from fedmx.cli.commands.run_loop import run_loop
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.fork import fork as make
    from fedmx.run.json_lines import plain

    with files_with_progress() as files:
        made = make(folder, round, overrides, without or (), modules=modules, files=files)
    origin = made.origin
    text = "\n".join([f"fork of {origin.run} after round {origin.round}", *origin.lines()])
    say("fork", text, **origin.record())

    def print_json(result: Result) -> None:
        found: dict[str, Any] = {
            "folder": str(result.folder.path),
            "fork": made.origin.record(),
            "rounds": result.folder.rounds()[-1]["round"],
            "reason": result.folder.reason,
            "accuracy": result.accuracy,
            "loss": result.loss,
        }
        typer.echo(json.dumps(plain(found, "the result")))  # a loss may be no number

    run_loop(
        made.server,
        made.folder,
        made.experiment,
        every=made.experiment.run.checkpoint.every,
        show=print_json if as_json else None,
    )
