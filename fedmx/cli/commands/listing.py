"""``fedmx list``: the names of an experiment file; ``fedmx schema``: all that one can hold."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fedmx.cli.terminal.options import AsJson

if TYPE_CHECKING:
    from fedmx.components.catalogue import Entry

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


def _kinds(incomplete: str) -> list[str]:
    """Return what a shell offers after Tab: the kinds of components that begin so."""
    return [kind for kind in PLACES if kind.startswith(incomplete)]


def show(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="models, data, hooks, ...  [default: all]",
            autocompletion=_kinds,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the names that an experiment file can use."""
    from fedmx.components.catalogue import read_catalogue
    from fedmx.components.text import unknown
    from fedmx.errors import FedmxError

    index = read_catalogue()
    if kind is not None and kind not in index:
        raise FedmxError(unknown("kind", kind, list(index)))
    if as_json:
        kinds = index if kind is None else {kind: index[kind]}
        found = {name: {key: asdict(one) for key, one in kinds[name].items()} for name in kinds}
        typer.echo(json.dumps(found))
        return
    if kind is not None:
        _show_kind(kind, index[kind], settings=True)
        return
    for name, entries in index.items():
        _show_kind(name, entries, settings=False)
        typer.echo()
    typer.echo("with their settings: fedmx list KIND, as in fedmx list hooks")


def schema() -> None:
    """Print the JSON schema of experiment files, for editors."""
    from fedmx.experiment.schema import experiment_schema

    typer.echo(json.dumps(experiment_schema(), indent=1, ensure_ascii=False))


def _show_kind(kind: str, entries: Mapping[str, Entry], *, settings: bool) -> None:
    """Print the components of a kind: names on the left, texts beside them.

    It is no table of `rich`, whose import takes longer than all the rest of this command.
    """
    where, own = PLACES[kind]
    typer.echo(f"{typer.style(kind, bold=True)} ({where})")
    names = {f"{key}NAME" if key.endswith(":") else key: entry for key, entry in entries.items()}
    left = max(map(len, [*names, "your own"])) + 2
    right = max(shutil.get_terminal_size().columns - left, 20)
    for name, entry in names.items():
        _show_row(name, left, textwrap.wrap(entry.about, right))
        for setting in entry.settings if settings else ():
            lines = textwrap.wrap(setting, right, initial_indent="  ", subsequent_indent="    ")
            _show_row("", left, (typer.style(line, dim=True) for line in lines))
    _show_row("your own", left, textwrap.wrap(own, right))


def _show_row(name: str, left: int, lines: Iterator[str] | list[str]) -> None:
    for line in lines or [""]:
        typer.echo(f"{name:{left}}{line}".rstrip())
        name = ""
