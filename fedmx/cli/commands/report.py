"""``fedmx report``: a page about one run, or about several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.terminal.tables import show_table
from fedmx.errors import FedmxError


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="HTML",
            help="The page to write. [default: in the folder of a single run]",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Accuracy, such as 0.98, to which rounds, bytes and time are counted.",
        ),
    ] = None,
    round: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The round whose timeline is drawn; otherwise one of median duration.",
        ),
    ] = None,
) -> None:
    """Write a page with figures about one run, or several side by side."""
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.report import summary_text, write_report
    from fedmx.run import RunFolder

    if output is not None and output.is_dir():
        raise FedmxError(f"{output}: is a folder; name a file in it, as {output / 'report.html'}")
    with LogLines():  # it says what is damaged
        folders = [RunFolder.open(path, salvage=True) for path in runs]
        path = output or (folders[0].report_path if len(folders) == 1 else Path("report.html"))
        write_report(folders, path, target, round)
        table = summary_text(folders, target)
    show_table(table)
    typer.echo(f"report: {path}")
