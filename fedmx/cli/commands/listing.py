"""``fedmx list``: the names that an experiment file can use."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmx.cli.terminal.tables import show_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

PLACES = {
    "presets": ("logic.preset", "preset: 'my_module:function'"),
    "selectors": ("logic.selector", "selector: {name: 'my_module:Pick', fraction: 0.5}"),
    "aggregators": ("logic.aggregator", "aggregator: 'my_module:Median'"),
    "hooks": ("logic.hooks", "hooks: [{name: 'my_module:Noise', sigma: 0.01}]"),
    "models": ("compute.model", "model: 'my_module:Net'"),
    "data": ("compute.data", "data: 'my_module:load'"),
    "partitions": ("compute.partition", "partition: 'my_module:Split'"),
    "schedules": ("compute.train.schedule", "schedule: 'my_module:Schedule'"),
    "devices": ("clock.devices", "devices: 'my_module:Phones'"),
    "uploads": ("clock.uploads", "uploads: 'my_module:Cell'"),
    "availabilities": ("clock.availability", "availability: 'my_module:Nights'"),
}
"""Where an experiment file names a component of each kind, and how it names the user's own."""


def show(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="models, data, hooks, ...  [default: all]"),
    ] = None,
) -> None:
    """List the names that an experiment file can use."""
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
    """Return the first paragraph of a component's documentation."""
    first = (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")
    first = first.replace("``", "`")
    about = first.removeprefix("Return ")
    # Other texts keep their first letter: it may be a formula, and w is not W.
    return first if about == first else about[:1].upper() + about[1:]


def _settings(entry: Any, family: bool) -> list[str]:
    """Return a line for each setting: its name, its default and its type."""
    from fedmx.components.settings import signature_of

    settings = list(signature_of(entry).settings.values())
    if family:
        settings = settings[1:]  # the first is what follows the colon
    return [f"{one}: {one.type}{', must be given' if one.required else ''}" for one in settings]
