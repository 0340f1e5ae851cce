"""``fedmx data``: data sets, and how an experiment divides one among its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.options import ExperimentFile, Overrides

app = typer.Typer(help="Look at data sets and how they are divided.", no_args_is_help=True)


@app.command("show")
def show(
    file: ExperimentFile,
    set_: Overrides = None,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw labels by client (PNG or SVG).")
    ] = None,
) -> None:
    """Show how the experiment in FILE divides its data among its clients."""
    from rich.console import Console

    from fedmx.assembly import Assembly
    from fedmx.cli.downloads import files_with_progress
    from fedmx.data.table import table
    from fedmx.experiment import Experiment

    assembly = Assembly(Experiment.read(file, set_ or []), files_with_progress())
    labels, parts, classes = assembly.dataset.train.y, assembly.parts[0], assembly.dataset.classes
    Console(highlight=False).print(table(labels, parts, classes))
    if figure is not None:
        from fedmx.data.figure import figure as draw

        draw(labels, parts, classes, figure)
        typer.echo(f"figure: {figure}")


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar-10, ...")],
) -> None:
    """Download a data set, or check that it is there and whole."""
    from fedmx.cli.downloads import files_with_progress
    from layers.compute.datasets import load

    files = files_with_progress()
    dataset = load(name, progress=files.progress)
    typer.echo(
        f"{dataset.name}: {len(dataset.train.y)} training and {len(dataset.test.y)} test samples "
        f"of shape {dataset.shape}, {dataset.classes} classes"
    )
