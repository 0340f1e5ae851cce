"""Where a data set's files are: the user's data folder, the cache, or the network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layers.compute.data.download import Progress, fetch
from layers.compute.data.errors import DataError


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded: its name, addresses, SHA-256 and length in bytes."""

    name: str
    urls: tuple[str, ...]
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Files:
    """The folders in which data sets are looked for; each data set has a folder there.

    Attributes:
        root: the user's folder, which is never written to; None: `FEDMX_DATA`, if it is set.
        cache: the folder for downloads, the second to be looked in; None: `FEDMX_CACHE`, or `fedmx`
            in the user's cache folder.
        download: whether to download a file that is in neither folder.
        progress: called while a file is downloaded.
    """

    root: Path | None = None
    cache: Path | None = None
    download: bool = True
    progress: Progress | None = None

    def folders(self, data_set: str) -> tuple[Path, ...]:
        """Return the folders in which a file of `data_set` may be; the last is the cache's.

        Raises:
            DataError: the user's folder is not a folder.
        """
        root = self.root
        named = "the data folder"
        if root is None and os.environ.get("FEDMX_DATA"):
            root = Path(os.environ["FEDMX_DATA"])
            named = "FEDMX_DATA"
        cache = self.cache_of(data_set)
        if root is None:
            return (cache,)
        if not root.is_dir():
            raise DataError(f"{named} is {root}, which is not a folder; correct it or leave it out")
        return (root / data_set, cache)

    def cache_of(self, data_set: str) -> Path:
        """Return the folder of `data_set` in the cache, which may be written to."""
        return (self.cache or default_cache()) / data_set

    def existing(self, data_set: str, names: Sequence[str]) -> Path | None:
        """Return the path of the first of `names` that exists in `folders`, or None."""
        for folder in self.folders(data_set):
            for name in names:
                if (folder / name).exists():
                    return folder / name
        return None

    def find(self, data_set: str, names: Sequence[str], remote: Remote) -> Path:
        """Return the path of the first of `names` that exists; if none does, download `remote`.

        Raises:
            DataError: none exists, and `remote` must not or cannot be downloaded.
        """
        path = self.existing(data_set, names)
        if path is not None:
            return path
        folders = self.folders(data_set)
        if not self.download:
            places = " or ".join(str(folder) for folder in folders)
            raise DataError(
                f"{data_set}: no {' or '.join(names)} in {places}; put it there, "
                "or allow the download"
            )
        return fetch(
            remote.urls,
            folders[-1] / remote.name,
            sha256=remote.sha256,
            size_bytes=remote.size_bytes,
            progress=self.progress,
        )


def default_cache() -> Path:
    """Return the folder for downloads: `FEDMX_CACHE`, or `fedmx` in the XDG cache folder."""
    if os.environ.get("FEDMX_CACHE"):
        return Path(os.environ["FEDMX_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedmx"
