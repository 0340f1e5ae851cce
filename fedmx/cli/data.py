"""``fedmx data``: data sets, and how an experiment divides one among its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.options import ExperimentFile, Overrides, help_if_alone
from fedmx.cli.tables import show_table

app = typer.Typer(help="Look at data sets and how they are divided.")


@app.callback(invoke_without_command=True)
def _shared(context: typer.Context) -> None:
    help_if_alone(context)


@app.command("show")
def show(
    file: ExperimentFile,
    set_: Overrides = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Also draw labels by client (.png, .svg or .pdf)."),
    ] = None,
) -> None:
    """Show how an experiment divides its data among its clients."""
    from fedmx.experiment import Experiment

    experiment = Experiment.read(file, set_ or [])

    from fedmx.assembly import Assembly
    from fedmx.cli.downloads import files_with_progress
    from fedmx.data.table import table

    with files_with_progress() as files:
        assembly = Assembly(experiment, files)
        labels, parts = assembly.dataset.train.y, assembly.parts[0]
    classes = assembly.dataset.classes
    show_table(table(labels, parts, classes))
    if figure is not None:
        from fedmx.data.figure import figure as draw

        title = f"{experiment.compute.data.name}: samples by label and client"
        typer.echo(f"figure: {draw(labels, parts, classes, figure, title=title)}")


@app.command("list")
def available() -> None:
    """Say which data sets are on this machine, and which would be downloaded."""
    from rich.table import Table

    from fedmx.cli.data_places import places

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, place in places():
        table.add_row(name, place)
    show_table(table)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As fedmx data list shows it.")],
) -> None:
    """Download a data set, or check that it is there and whole."""
    from fedmx.cli.downloads import files_with_progress
    from fedmx.errors import FedmxError
    from fedmx.wording import unknown
    from layers.compute.datasets import DATASETS

    if name not in DATASETS:
        raise FedmxError(unknown("data set", name, DATASETS))
    if name == "arrays":
        raise FedmxError(
            "arrays are a file of your own: name it in the experiment, as in "
            "compute.data: {name: arrays, path: my.npz}"
        )
    with files_with_progress() as files:
        dataset = DATASETS[name]().load(files)
    typer.echo(
        f"{dataset.name}: {len(dataset.train.y):,} training and {len(dataset.test.y):,} test "
        f"samples of shape {dataset.shape}, {dataset.classes} classes"
    )
