"""FEMNIST: handwritten digits and letters by writer (Caldas et al., "LEAF", 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset
from layers.compute.data.datasets.arrays import from_arrays
from layers.compute.data.errors import DataError
from layers.compute.data.files import Files
from layers.compute.data.formats.leaf import Split, leaf_files, read_leaf
from layers.compute.data.formats.npz import read_npz, take
from layers.compute.data.row_store import stored

_NAME = "femnist"
_CLASSES = 62
_PIXELS = 28 * 28
_FOLDERS = ("train", "data/train")
_ARCHIVES = ("femnist.npz", "femnist_subset.npz")


@dataclass(frozen=True)
class Femnist:
    """Samples of shape (1, 28, 28), uint8 from 0 (ink) to 255 (paper), by writer; 62 classes.

    Labels 0 to 9 are digits, 10 to 35 capital and 36 to 61 small letters. With the partition
    `by-user` a client is a writer.

    The files are what LEAF makes, the folders `train` and `test` of JSON files, or `femnist.npz`
    (or `femnist_subset.npz`). This has names in `users`, `train_x` (n, 28, 28) uint8, `train_y`,
    and `train_user`, indices into `users`; and the same with `test_`.

    The images of a large set of JSON files are converted once, into the cache folder, and each
    client's are read from there when it is selected.

    Source: https://github.com/TalwalkarLab/leaf
    """

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        path = files.existing(_NAME, (*_FOLDERS, *_ARCHIVES))
        if path is None:
            places = " or ".join(str(folder) for folder in files.folders(_NAME))
            raise DataError(
                f"femnist: no folder train and no {_ARCHIVES[0]} in {places}; make the folders "
                "with LEAF (github.com/TalwalkarLab/leaf, data/femnist: ./preprocess.sh -s niid "
                "--sf 1.0 -k 0 -t sample) and put train and test there"
            )
        if path.suffix == ".npz":
            return _dataset(*_archive(path))
        folders = [path.parent / split for split in ("train", "test")]
        sources = [source for folder in folders for source in leaf_files(folder)]
        return stored(
            files,
            _NAME,
            sources,
            "",
            lambda: _dataset(*(read_leaf(folder, _PIXELS, _images) for folder in folders)),
        )


def _dataset(train: Split, test: Split) -> Dataset:
    """Return both splits as a data set."""
    return from_arrays(
        train.x,
        train.y,
        test.x,
        test.y,
        users=train.users,
        users_test=test.users,
        classes=_CLASSES,
        name=_NAME,
    )


def _images(x: npt.NDArray[np.float64], where: str) -> npt.NDArray[np.uint8]:
    pixels = np.rint(x * 255)
    if np.abs(x * 255 - pixels).max() > 1e-3 or pixels.min() < 0 or pixels.max() > 255:
        raise DataError(f"{where}: pixels are not bytes divided by 255; make it again with LEAF")
    return np.asarray(pixels.reshape(-1, 1, 28, 28), np.uint8)


def _archive(path: Path) -> tuple[Split, Split]:
    arrays = read_npz(path)
    where = str(path)
    users = take(arrays, "users", "U", (None,), where)
    splits = []
    for split in ("train", "test"):
        x = take(arrays, f"{split}_x", "u", (None, 28, 28), where)
        y = take(arrays, f"{split}_y", "ui", (len(x),), where)
        user = take(arrays, f"{split}_user", "ui", (len(x),), where)
        if x.dtype != np.uint8:
            raise DataError(f"{path}: {split}_x has the dtype {x.dtype}, not uint8")
        if len(x) and (user.min() < 0 or user.max() >= len(users)):
            raise DataError(
                f"{path}: {split}_user goes from {user.min()} to {user.max()}, "
                f"but there are {len(users)} users"
            )
        splits.append(Split(x[:, np.newaxis], y.astype(np.int64), users[user]))
    return splits[0], splits[1]
