"""``fedmx evaluate``: the models of runs on files of samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmx.cli.options import AsJson, Modules, OwnModules, modules_of_run
from fedmx.cli.output import show_table


def evaluate(
    models: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The run folders.")],
    data: Annotated[
        list[Path],
        typer.Option("--data", metavar="FILE", help="A file of samples; may be repeated."),
    ],
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate the models of runs on files of samples."""
    from fedmx.display import same_keys
    from fedmx.quantities import QUANTITIES
    from fedmx.report.formats import SHOW, number
    from fedmx.run import RunFolder
    from fedmx.run.records import plain

    folders = [RunFolder.open(path) for path in models]
    modules = {one for folder in folders for one in modules_of_run(folder, module, own_modules)}

    from fedmx.export.evaluation import evaluate as results

    rows = same_keys(results(folders, data, modules))
    if as_json:
        typer.echo(json.dumps([plain(row, "the result") for row in rows]))  # no infinity
        return

    from rich import box
    from rich.table import Table

    shown = {one.key: SHOW.get(one.unit, number) for one in QUANTITIES}
    keys = [key for key in rows[0] if not any(isinstance(row[key], list) for row in rows)]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for key in keys:
        is_text = isinstance(rows[0][key], str)
        place: Any = ("left", "fold") if is_text else ("right", "ellipsis")
        table.add_column(key.replace("_", " "), justify=place[0], overflow=place[1])

    def cell(key: str, value: Any) -> str:
        if isinstance(value, str | int):
            return str(value)
        return shown.get(key, number)(value)

    for row in rows:
        table.add_row(*(cell(key, row[key]) for key in keys))
    show_table(table)
