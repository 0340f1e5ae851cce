"""A data set of four IDX files: images of 28 x 28 and labels, for training and for testing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.errors import DataError
from layers.compute.data.files import Files, Remote
from layers.compute.data.formats.idx import read_idx

Checksum = tuple[str, int]
"""A file's SHA-256 in hex and its length in bytes."""

_SHAPE = (28, 28)
_CLASSES = 10


@dataclass(frozen=True)
class IdxSet:
    """The data set's name, the addresses that serve its files, and the files' checksums."""

    name: str
    mirrors: tuple[str, ...]
    train_x: Checksum
    train_y: Checksum
    test_x: Checksum
    test_y: Checksum

    def load(self, files: Files) -> Dataset:
        """Return both splits, and download the files that are missing; see `DatasetSource.load`."""
        return Dataset(
            name=self.name,
            train=self._split(files, "train", self.train_x, self.train_y),
            test=self._split(files, "t10k", self.test_x, self.test_y),
            classes=_CLASSES,
            shape=(1, *_SHAPE),
        )

    def _split(self, files: Files, split: str, x_sum: Checksum, y_sum: Checksum) -> Raw:
        paths = [
            files.find(self.name, (f"{stem}.gz", stem), self._remote(f"{stem}.gz", *checksum))
            for stem, checksum in (
                (f"{split}-images-idx3-ubyte", x_sum),
                (f"{split}-labels-idx1-ubyte", y_sum),
            )
        ]
        x = read_idx(paths[0], _SHAPE)
        y = read_idx(paths[1], ())
        if len(x) != len(y):
            raise DataError(
                f"{paths[0]} has {len(x)} images, but {paths[1]} has {len(y)} labels; "
                "they do not belong together; fetch them again"
            )
        return Raw(x[:, np.newaxis], y.astype(np.int64))

    def _remote(self, name: str, sha256: str, size_bytes: int) -> Remote:
        return Remote(name, tuple(mirror + name for mirror in self.mirrors), sha256, size_bytes)
