"""``fedmx diff``: where two runs part, in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.commands.time_travel.replay import AsJson, RunPath
from fedmx.cli.terminal.error_text import one_line
from fedmx.cli.terminal.exit_codes import OTHER_BITS
from fedmx.cli.terminal.permission import Modules, OwnModules, allowed_modules
from fedmx.cli.terminal.restart import restart_on


def diff(
    path: RunPath,
    other: Annotated[Path, typer.Argument(metavar="RUN", help="The other run folder.")],
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Say where two runs part: settings, round, client, station."""
    from fedmx.run import RunFolder

    folders = RunFolder.open(path), RunFolder.open(other)
    allowed = [
        allowed_modules(
            folder.path / "experiment.yaml", (), module, own_modules, folder.modules_path
        )
        for folder in folders
    ]

    # Not before: this imports MXNet, and a wrong folder should be shown at once.
    from fedmx.cli.terminal.downloads import files_with_progress
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.diff import diff as told_apart
    from fedmx.replay import RecordedRun
    from fedmx.replay.replaying import SERIAL

    with LogLines(), files_with_progress() as files:
        runs = [
            RecordedRun.open(folder, modules=modules, overrides=SERIAL, files=files)
            for folder, modules in zip(folders, allowed, strict=True)
        ]
        for run in runs:
            restart_on(run.experiment.compute.bits)
        report = told_apart(*runs)
    typer.echo(json.dumps(report.record()) if as_json else one_line(report.sentence))
    if not report.same:
        raise typer.Exit(OTHER_BITS)
