"""``fedmx data``: data sets, and their partitions among clients."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from fedmx.cli.options import (
    AsJson,
    Modules,
    Overrides,
    OwnModules,
    permitted,
    show_help_without_command,
)
from fedmx.cli.output import say, show_table

DEFAULT_CLIENTS = 100  # for a data set that is named without an experiment
app = typer.Typer(help="Show data sets and their partitions among clients.")


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command("show")
def show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|NAME", help="An experiment file, or a data set.")
    ],
    clients: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of clients.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="NAME", help="A name from fedmx list partitions.")
    ] = None,
    set_: Overrides = None,
    figure: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Also draw labels by client (.png, .svg or .pdf)."),
    ] = None,
    module: Modules = None,
    own_modules: OwnModules = False,
    as_json: AsJson = False,
) -> None:
    """Show the partition of a data set among clients."""

    from fedmx.components.catalogue import read_catalogue
    from fedmx.experiment import Experiment
    from fedmx.output_file import check_output

    if figure is not None:
        check_output(figure, "a figure is PNG, SVG or PDF", (".png", ".svg", ".pdf"))
    overrides = [] if clients is None else [f"clients={clients}"]
    overrides += [] if partition is None else [f"compute.partition={partition}"]
    overrides += set_ or []
    if str(file) in read_catalogue()["data"] and not file.exists():
        compute = {
            "model": "2nn",
            "data": str(file),
        }  # the schema needs a model
        given = {"rounds": 1, "clients": DEFAULT_CLIENTS, "compute": compute}
        experiment = Experiment.from_dict(given, overrides)
    else:
        experiment = permitted(Experiment.read(file, overrides), module, own_modules)

    from fedmx.assembly.assembly import Assembly
    from fedmx.assembly.doubts import of_data
    from fedmx.assembly.label_counts import count
    from fedmx.cli.datasets import files_with_progress
    from fedmx.report.partition import table

    with files_with_progress() as files:
        assembly = Assembly(experiment, files)
        labels = [assembly.labels_of(client) for client in range(experiment.clients)]
        for doubt in of_data(assembly):
            say("data_doubtful", f"{doubt}; is this intended?", what=doubt)
    counts = count(labels, assembly.data.dataset.targets)
    if as_json:
        samples = {"data": experiment.compute.data.name, "samples": counts.tolist()}
        typer.echo(json.dumps(samples))
    else:
        show_table(table(counts))
        names = getattr(assembly.data.dataset, "names", ())
        if names:
            typer.echo(", ".join(f"{number}: {one}" for number, one in enumerate(names)))
    if figure is not None:
        from fedmx.report.partition_figure import figure as draw

        title = f"{experiment.compute.data.name}: samples by label and client"
        drawn = draw(counts, figure, title=title)
        typer.echo(f"figure: {drawn}", err=as_json)


@app.command("list")
def available(as_json: AsJson = False) -> None:
    """Show which data sets are on this machine."""
    from fedmx.cli.datasets import dataset_locations

    if as_json:
        typer.echo(json.dumps(dict(dataset_locations())))
        return

    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, place in dataset_locations():
        table.add_row(name, place)
    show_table(table)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from fedmx data list.")],
    as_json: AsJson = False,
) -> None:
    """Download a data set, or check the local copy."""
    from fedmx.cli.datasets import files_with_progress
    from fedmx.components.settings import signature_of
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError
    from layers.compute.data.datasets import DATASETS

    if name not in DATASETS:
        raise FedmxError(unknown("data set", name, DATASETS))
    needs = [one.name for one in signature_of(DATASETS[name]).settings.values() if one.required]
    if needs:
        settings = ", ".join(f"{one}: ..." for one in needs)
        raise FedmxError(
            f"{name} is data of your own; describe them in the experiment, as in "
            f"compute.data: {{name: {name}, {settings}}}"
        )
    with files_with_progress() as files:
        dataset = DATASETS[name]().load(files)
    if as_json:
        found = {"data": dataset.name, "train": len(dataset.train.y), "test": len(dataset.test.y)}
        shape = {"shape": list(dataset.shape), "targets": dataclasses.asdict(dataset.targets)}
        typer.echo(json.dumps(found | shape))
        return
    typer.echo(
        f"{dataset.name}: {len(dataset.train.y):,} training and {len(dataset.test.y):,} test "
        f"samples of shape {dataset.shape}, {dataset.targets}"
    )
