"""``fedmx report``: one run, or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write the page.")
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy to which rounds, bytes and time are counted.")
    ] = None,
) -> None:
    """Write a page with figures about one run, or several side by side."""
    from rich.console import Console

    from fedmx.report import summary_text, write_report
    from fedmx.run import RunFolder

    folders = [RunFolder.open(path) for path in runs]
    path = output or (folders[0].report_path if len(folders) == 1 else Path("report.html"))
    write_report(folders, path, target)
    Console(highlight=False).print(summary_text(folders, target))
    typer.echo(f"report: {path}")
