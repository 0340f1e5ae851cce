"""Tables and texts on stdout, for a terminal of any width and for the next command in a pipe."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def show_table(table: Table) -> None:
    """Print a table without blanks at the ends of its lines."""
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table, markup=False)
    # To the file itself: the console would wrap the escape codes in these lines.
    for line in captured.get().splitlines():
        console.file.write(f"{line.rstrip()}\n")


def show_text(lines: Iterable[str]) -> None:
    """Print lines; on a terminal that is too narrow for one, it is broken between words."""
    import typer

    for line in lines:
        if sys.stdout.isatty():
            line = _broken(line, max(shutil.get_terminal_size().columns, 20))
        typer.echo(line)


def _broken(line: str, columns: int) -> str:
    """Return a line as lines of at most so many columns, with the indent of the first."""
    if len(line) <= columns:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    wrapper = textwrap.TextWrapper(
        columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.fill(line)
