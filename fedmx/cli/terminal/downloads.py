"""The progress bar of a download."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from fedmx.cli.terminal.json_lines import is_json, say
from layers.compute.data.datasets import Files


@contextlib.contextmanager
def files_with_progress() -> Iterator[Files]:
    """Return a context manager with the places of data sets; a download shows its progress.

    A terminal shows a bar, other outputs one line.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    bar = Progress(
        TextColumn("downloading {task.description}"),
        BarColumn(20),
        DownloadColumn(binary_units=True),
        console=Console(stderr=True),
        transient=True,
    )
    terminal = sys.stderr.isatty() and not is_json()
    tasks: dict[str, TaskID] = {}

    def show(name: str, done: int, total: int | None) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=total)
            if terminal:
                bar.start()
            else:
                say("downloading", f"downloading {name}", name=name)
        bar.update(tasks[name], completed=done, total=total)

    try:
        yield Files(progress=show)
    finally:
        if terminal and tasks:
            bar.stop()
