"""``fedmx list``: the names that an experiment file can use."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.terminal.tables import show_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

# Where an experiment file names one of each kind, and how it names one of the user's own.
PLACES = {
    "presets": ("logic.preset", "preset: 'my_module:function'"),
    "selectors": ("logic.selector", "select: {name: 'my_module:Select', fraction: 0.5}"),
    "aggregators": ("logic.aggregator", "aggregate: 'my_module:Median'"),
    "hooks": ("logic.hooks", "hooks: [{name: 'my_module:Noise', sigma: 0.01}]"),
    "models": ("compute.model", "model: 'my_module:Net'"),
    "data": ("compute.data", "data: 'my_module:load'"),
    "partitions": ("compute.partition", "partition: 'my_module:Split'"),
    "schedules": ("compute.train.schedule", "schedule: 'my_module:Schedule'"),
    "devices": ("clock.devices", "devices: 'my_module:Phones'"),
    "uploads": ("clock.uploads", "uploads: 'my_module:Cell'"),
    "availabilities": ("clock.availability", "availability: 'my_module:Nights'"),
}


def show(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="models, data, hooks, ...; all without it."),
    ] = None,
) -> None:
    """List what an experiment file can name, with its settings."""
    from fedmx.components.catalogue import CATALOGUE
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError

    if kind is not None and kind not in CATALOGUE:
        raise FedmxError(unknown("kind", kind, list(CATALOGUE)))
    if kind is not None:
        show_table(_table(kind, CATALOGUE[kind], settings=True))
        return
    for name, entries in CATALOGUE.items():
        show_table(_table(name, entries, settings=False))
        typer.echo()
    typer.echo("with their settings: fedmx list KIND, as in fedmx list hooks")


def _table(kind: str, entries: Mapping[str, Any], *, settings: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    where, own = PLACES[kind]
    table = Table(
        title=Text.assemble((kind, "bold"), f" ({where})"),
        title_justify="left",
        title_style="",
        box=None,
        pad_edge=False,
        show_header=False,
    )
    table.add_column(no_wrap=True)
    table.add_column()
    for key, entry in entries.items():
        family = key.endswith(":")
        table.add_row(Text(f"{key}NAME" if family else key), Text(_about(entry)))
        for setting in _settings(entry, family) if settings else ():
            table.add_row("", Text(f"  {setting}", style="dim"))
    table.add_row("your own", Text(own))
    return table


def _about(entry: Any) -> str:
    """Return what the documentation of a component begins with."""
    first = (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")
    first = first.replace("``", "`")
    about = first.removeprefix("Return ")  # else it may begin with a formula: w is not W
    return first if about == first else about[:1].upper() + about[1:]


def _settings(entry: Any, family: bool) -> list[str]:
    """Return a line for each setting: its name, its default and its type."""
    from fedmx.components.settings import signature_of

    known = list(signature_of(entry).settings.values())
    if family:
        known = known[1:]  # the first is what follows the colon
    return [f"{one}: {one.type}{', must be given' if one.required else ''}" for one in known]
