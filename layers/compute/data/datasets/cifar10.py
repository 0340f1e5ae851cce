"""CIFAR-10: 50,000 and 10,000 colour photographs of 32 x 32 pixels (Krizhevsky, 2009)."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.errors import DataError
from layers.compute.data.files import Files, Remote

_NAME = "cifar-10"
_SHAPE = (3, 32, 32)
_CLASSES = 10
_RECORDS = 10_000
_RECORD_BYTES = 1 + 3 * 32 * 32
_FOLDER = "cifar-10-batches-bin"
_BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")

REMOTE = Remote(
    "cifar-10-binary.tar.gz",
    (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
    ),
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170_052_171,
)


@dataclass(frozen=True)
class Cifar10:
    """Samples of shape (3, 32, 32), red, green, blue, uint8 from 0 to 255; 10 classes.

    The files are the binary version: the folder `cifar-10-batches-bin`, or an archive of it,
    `cifar-10-binary.tar.gz` or `.tar.xz`, which is read where it is and never unpacked.
    Format: https://www.cs.toronto.edu/~kriz/cifar.html
    """

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        path = files.find(_NAME, (_FOLDER, REMOTE.name, "cifar-10-binary.tar.xz"), REMOTE)
        x = np.empty((len(_BATCHES), _RECORDS, *_SHAPE), dtype=np.uint8)
        y = np.empty((len(_BATCHES), _RECORDS), dtype=np.int64)
        missing = set(_BATCHES)
        for name, content in _in_folder(path) if path.is_dir() else _in_archive(path):
            records = _records(content, f"{path}: {name}")
            number = _BATCHES.index(name)
            y[number] = records[:, 0]
            x[number] = records[:, 1:].reshape(-1, *_SHAPE)
            missing.discard(name)
        if missing:
            raise DataError(
                f"{path}: lacks {', '.join(sorted(missing))}; delete it and fetch it again"
            )
        return Dataset(
            name=_NAME,
            train=Raw(x[:-1].reshape(-1, *_SHAPE), y[:-1].reshape(-1)),
            test=Raw(x[-1], y[-1]),
            classes=_CLASSES,
            shape=_SHAPE,
        )


def _records(content: bytes, where: str) -> npt.NDArray[np.uint8]:
    if len(content) != _RECORDS * _RECORD_BYTES:
        raise DataError(
            f"{where} has {len(content)} bytes, not {_RECORDS * _RECORD_BYTES}; "
            "delete it and fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(_RECORDS, _RECORD_BYTES)


def _in_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for name in _BATCHES:
        if not (folder / name).exists():
            continue
        try:
            with (folder / name).open("rb") as file:
                # Reading one byte more than there may be shows a file that is too long.
                content = file.read(_RECORDS * _RECORD_BYTES + 1)
        except OSError as error:
            raise DataError(f"{folder / name}: cannot be read ({error.strerror})") from error
        yield name, content


def _in_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    # Members are read into memory one by one, and nothing is written to disk.
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name not in _BATCHES or not member.isfile():
                    continue
                if member.size != _RECORDS * _RECORD_BYTES:
                    raise DataError(
                        f"{path}: {member.name} has {member.size} bytes, not "
                        f"{_RECORDS * _RECORD_BYTES}; delete it and fetch it again"
                    )
                file = archive.extractfile(member)
                yield name, file.read() if file is not None else b""
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); delete it and fetch it again"
        ) from error
