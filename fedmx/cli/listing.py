"""``fedmx list``: the names that an experiment file can use."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer


def show(
    kind: Annotated[
        str | None, typer.Argument(help="models, data, hooks, ...; all without it.")
    ] = None,
) -> None:
    """List the names that an experiment file can use, with their settings."""
    from rich.console import Console
    from rich.table import Table

    from fedmx.errors import FedmxError
    from fedmx.kinds import KINDS
    from fedmx.settings import signature_of
    from fedmx.wording import unknown

    if kind is not None and kind not in KINDS:
        raise FedmxError(unknown("kind", kind, list(KINDS)))
    console = Console(highlight=False)
    for name in KINDS if kind is None else (kind,):
        table = Table(title=name, title_justify="left", box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for key, entry in KINDS[name].items():
            about = (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")
            known = signature_of(entry).settings.values()
            settings = ", ".join(str(one) for one in known)
            table.add_row(f"{key}NAME" if key.endswith(":") else key, about)
            if settings:
                table.add_row("", f"  {settings}")
        console.print(table, markup=False)
        console.print()
