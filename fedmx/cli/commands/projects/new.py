"""``fedmx new``: a small project to begin with."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedmx.errors import FedmxError
from fedmx.shell_line import shell_line

_DATA = ("csv", "images")


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME", help="The folder to write.", show_default=False)
    ],
    hook: Annotated[bool, typer.Option("--hook", help="With a hook of your own.")] = False,
    model: Annotated[bool, typer.Option("--model", help="With your own model and arrays.")] = False,
    selector: Annotated[
        bool, typer.Option("--selector", help="With your own selector and devices.")
    ] = False,
    aggregator: Annotated[
        bool, typer.Option("--aggregator", help="With an aggregator of your own.")
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(metavar="csv|images", help="With data from a CSV file or a folder of images."),
    ] = None,
    deploy: Annotated[
        bool, typer.Option("--deploy", help="A server and two clients over mutual TLS.")
    ] = False,
) -> None:
    """Write a small project: an experiment, its code and tests."""
    if data is not None and data not in _DATA:
        raise FedmxError(f"--data {data}: unknown kind of data; write csv or images")
    flags = {"hook": hook, "model": model, "selector": selector, "aggregator": aggregator}
    chosen = [name for name, is_set in {**flags, "deploy": deploy}.items() if is_set]
    chosen += [] if data is None else [data]
    if len(chosen) != 1:
        raise FedmxError(
            "say what the project is for, with one of --hook, --model, --selector, --aggregator, "
            f"--data csv, --data images, --deploy ({len(chosen)} of them are there)"
        )

    # Not before: `fedmx --help` does not wait for what these import.
    from fedmx.new import KINDS, write_project

    (kind,) = chosen
    for name in write_project(folder, kind):
        typer.echo(f"{folder}/{name}")
    go = shell_line("cd", folder)
    install = "" if find_spec("pytest") else "pip install pytest; "
    typer.echo(f"\nRun it:   {go}; {KINDS[kind].command}\nTest it:  {go}; {install}pytest")
