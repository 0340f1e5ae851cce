"""Large data sets as rows on disk: converted once, then read client by client.

The converted files are in the cache folder, never in the user's data folder. They are mapped into
memory, so only the rows of selected clients are read, and all processes of a machine share them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.files import Files
from layers.compute.data.targets import Targets

FORMAT = 2
LARGE_BYTES = 64 << 20
"""A data set whose files are this large or larger is converted; others are read into memory."""


def stored(
    files: Files, name: str, sources: Sequence[Path], settings: str, read: Callable[[], Dataset]
) -> Dataset:
    """Return a data set whose samples are on disk, or in memory if the cache cannot be written.

    Args:
        files: give the cache.
        name: of the data set, and of its folder in the cache.
        sources: the files of the data set.
        settings: the settings on which its samples depend.
        read: reads it into memory; called if it is not converted yet.
    """
    if sum(path.stat().st_size for path in sources) < LARGE_BYTES:
        return read()
    folder = files.cache_of(name) / f"rows-{_key(sources, settings)}"
    found = _opened(folder)
    if found is not None:
        return found
    dataset = read()
    try:
        _write(folder, dataset)
    except OSError:
        return dataset
    return _opened(folder) or dataset


def _key(sources: Sequence[Path], settings: str) -> str:
    """Return a name that depends on the settings and on the files' paths, sizes and times."""
    stats = [(str(path.absolute()), path.stat()) for path in sources]
    content = [FORMAT, settings, [(path, one.st_size, one.st_mtime_ns) for path, one in stats]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _write(folder: Path, dataset: Dataset) -> None:
    """Write the folder of a data set, completely or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists() and _opened(folder) is None:
        shutil.rmtree(folder)  # it is damaged
    beside = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        beside.chmod(0o755)  # others may share the cache
        for split, raw in (("train", dataset.train), ("test", dataset.test)):
            for array in ("x", "y", "users"):
                values = getattr(raw, array)
                if values is not None:
                    np.save(beside / f"{split}_{array}.npy", values, allow_pickle=False)
        about = {"name": dataset.name, "targets": asdict(dataset.targets), "words": dataset.words}
        (beside / "about.json").write_text(json.dumps(about))
        os.replace(beside, folder)
    except OSError:
        if not folder.exists():  # unless another process was faster
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _opened(folder: Path) -> Dataset | None:
    """Return the data set in a folder, or None if it is missing or incomplete."""
    try:
        about = json.loads((folder / "about.json").read_text())
        train, test = (_raw(folder, split) for split in ("train", "test"))
    except (OSError, ValueError):
        return None
    return Dataset(
        name=about["name"],
        train=train,
        test=test,
        targets=Targets(**about["targets"]),
        shape=train.x.shape[1:],
        words=tuple(about["words"]),
    )


def _raw(folder: Path, split: str) -> Raw:
    def load(array: str) -> npt.NDArray[Any]:
        path = folder / f"{split}_{array}.npy"
        mapped: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped

    # Partitions read all labels and users, so these are read into memory.
    users = np.array(load("users")) if (folder / f"{split}_users.npy").exists() else None
    return Raw(load("x"), np.array(load("y")), users)
