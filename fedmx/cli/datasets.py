"""Data sets on the terminal: the progress of a download, and where each data set is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from fedmx.cli.output import LogLines, is_live, say
from fedmx.components.settings import signature_of
from layers.compute.data.datasets import DATASETS, DataError, Files
from layers.compute.data.files import Remote


@contextlib.contextmanager
def files_with_progress() -> Iterator[Files]:
    """Yield a finder of data files that shows the progress of downloads, and show log lines.

    A terminal shows a bar, any other output one line for each download.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("downloading {task.description}"),
        BarColumn(20),
        DownloadColumn(binary_units=True),
        console=console,
        transient=True,
    )
    terminal = is_live(console)
    tasks: dict[str, TaskID] = {}

    def show(name: str, done: int, total: int) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=total)
            if terminal:
                bar.start()
            else:
                say("downloading", f"downloading {name}", name=name)
        bar.update(tasks[name], completed=done, total=total)

    try:
        with LogLines():
            yield Files(progress=show)
    finally:
        if terminal and tasks:
            bar.stop()


class _LocationFound(Exception):
    """Ends the load of a data set at its first file; the text is the file's location."""


@dataclass(frozen=True)
class _LocationFinder(Files):
    """Finds the location or source of a file without reading or downloading it."""

    def existing(self, data_set: str, names: Sequence[str]) -> Path | None:
        """Raise `_LocationFound` if the file is on this machine, or return None."""
        path = super().existing(data_set, names)
        if path is not None:
            raise _LocationFound(f"here: {path.parent}")
        return None

    def find(self, data_set: str, names: Sequence[str], remote: Remote) -> NoReturn:
        """Raise `_LocationFound`: where the file is, or from where it would be downloaded."""
        self.existing(data_set, names)
        host = urlsplit(remote.urls[0]).hostname
        raise _LocationFound(f"would be downloaded from {host} into {self.folders(data_set)[-1]}")


def dataset_locations(files: Files | None = None) -> Iterator[tuple[str, str]]:
    """Yield the name of each data set, and its location or source.

    Raises:
        DataError: FEDMX_DATA is not a folder.
    """
    given = files or Files()
    finder = _LocationFinder(
        **{one.name: getattr(given, one.name) for one in dataclasses.fields(given)}
    )
    finder.folders("")
    for name, source in DATASETS.items():
        settings = signature_of(source).settings.values()
        needs = [one.name for one in settings if one.required]
        if needs:
            yield name, f"your own: give {', '.join(needs)}"
            continue
        if hasattr(source, "client"):
            yield name, "no files: drawn from the seed"
            continue
        try:
            source().load(finder)
        except _LocationFound as location:
            yield name, str(location)
        except DataError as error:
            yield name, "not here: " + str(error).removeprefix(f"{name}: ")
        else:
            yield name, "here: it comes with an installed package"
