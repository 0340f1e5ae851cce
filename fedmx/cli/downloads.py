"""The bar that a download shows on a terminal."""

from __future__ import annotations

import sys

from layers.compute.datasets import Files


def files_with_progress() -> Files:
    """Return where data sets are, with a progress bar for what has to be downloaded."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bars: dict[str, tuple[Progress, object]] = {}

    def show(name: str, done: int, total: int | None) -> None:
        if not sys.stderr.isatty():
            return
        if name not in bars:
            bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                console=Console(stderr=True),
            )
            bar.start()
            bars[name] = (bar, bar.add_task(name, total=total))
        bar, task = bars[name]
        bar.update(task, completed=done)  # type: ignore[arg-type]
        if total is not None and done >= total:
            bar.stop()
            del bars[name]

    return Files(progress=show)
