"""Where each data set is on this machine, found out by asking it for its first file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from fedmx.components.settings import signature_of
from layers.compute.data.datasets import DATASETS, DataError, Files
from layers.compute.data.datasets.files import Remote


class _AskedError(Exception):
    """A data set asked for a file, and that is all that was wanted of it; the text says where."""


@dataclass(frozen=True)
class _Scout(Files):
    """Says where a file is, or would come from, and reads and fetches nothing."""

    def existing(self, data_set: str, names: Sequence[str]) -> Path | None:
        """Raise where a file is, or return that it is nowhere."""
        path = super().existing(data_set, names)
        if path is not None:
            raise _AskedError(f"here: {path.parent}")
        return None

    def find(self, data_set: str, names: Sequence[str], remote: Remote) -> NoReturn:
        """Raise what there is to say of the file."""
        self.existing(data_set, names)
        host = urlsplit(remote.urls[0]).hostname
        raise _AskedError(f"would be downloaded from {host} into {self.folders(data_set)[-1]}")


def dataset_locations(files: Files | None = None) -> Iterator[tuple[str, str]]:
    """Yield each data set's name, and where it is or would come from.

    Raises:
        DataError: FEDMX_DATA is no folder.
    """
    given = files or Files()
    scout = _Scout(**{one.name: getattr(given, one.name) for one in dataclasses.fields(given)})
    scout.folders("")
    for name, source in DATASETS.items():
        settings = signature_of(source).settings.values()
        needs = [one.name for one in settings if one.required]
        if needs:
            yield name, f"your own: give {', '.join(needs)}"
            continue
        try:
            source().load(scout)
        except _AskedError as asked:
            yield name, str(asked)
        except DataError as error:
            yield name, "not here: " + str(error).removeprefix(f"{name}: ")
        else:
            yield name, "here: it comes with an installed package"
