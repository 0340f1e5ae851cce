"""Tables on stdout, for a terminal of any width and for the next command in a pipe."""

from __future__ import annotations

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
