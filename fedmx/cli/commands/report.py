"""``fedmx report``: a page about one run, or about several side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.terminal.options import AsJson
from fedmx.cli.terminal.tables import show_table
from fedmx.output_file import check_output


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
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write the figures as PDF and SVG, one column wide."
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a row for each run, as CSV."),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a table of the groups, for booktabs."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page with figures about one run, or several side by side."""
    from fedmx.cli.terminal.log_lines import LogLines
    from fedmx.report import Comparison, comparison_text, write_page
    from fedmx.run import RunFolder

    if output is not None:
        check_output(output, "a report is HTML", (".html", ".htm"))
    if csv is not None:
        check_output(csv, "a table is CSV", (".csv",))
    if latex is not None:
        check_output(latex, "a table for LaTeX", (".tex",))
    with LogLines():  # it says what is damaged
        folders = [RunFolder.open(path, salvage=True) for path in runs]
        path = output or (folders[0].report_path if len(folders) == 1 else Path("report.html"))
        compared = Comparison.of(folders, target)
        write_page(compared, path, round)
        written = [] if figures is None else compared.write_figures(figures)
        if csv is not None:
            compared.write_csv(csv)
        if latex is not None:
            compared.write_latex(latex)
        if as_json:
            from fedmx.report.comparison import document

            typer.echo(json.dumps({"report": str(path), **document(folders, target)}))
            return
    show_table(comparison_text(compared))
    typer.echo(f"report: {path}")
    if written:
        typer.echo(f"figures: {len(written)} files in {figures}")
    for what, file in (("table", csv), ("table", latex)):
        if file is not None:
            typer.echo(f"{what}: {file}")
