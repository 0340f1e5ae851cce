"""FEMNIST: handwritten digits and letters by writer (Caldas et al., "LEAF", 2018)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset
from layers.compute.data.datasets.arrays import from_arrays, read_npz, take
from layers.compute.data.files import Files
from layers.compute.data.row_store import stored
from layers.compute.errors import DataError

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

    The files are LEAF's folders `train` and `test` of JSON files, or `femnist.npz` (or
    `femnist_subset.npz`) with the arrays `users`, names; `train_x` (n, 28, 28) uint8; `train_y`;
    `train_user`, indices into `users`; and the same with `test_`.

    A large set of JSON files is converted once, into the cache folder; a client's images are read
    from there when it is selected.

    Source: https://github.com/TalwalkarLab/leaf
    """

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        path = files.existing(_NAME, (*_FOLDERS, *_ARCHIVES))
        if path is None:
            raise DataError(
                f"femnist: no folder train and no {_ARCHIVES[0]} in {files.places(_NAME)}; "
                "make the folders with LEAF (github.com/TalwalkarLab/leaf, data/femnist: "
                "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample) and put train and test there"
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
    return from_arrays(
        train.x, train.y, test.x, test.y, train.users, test.users, classes=_CLASSES, name=_NAME
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


@dataclass(frozen=True)
class Split:
    """Samples `x` (n, ...), their labels `y` (n,) and the names of their users, `users` (n,)."""

    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64]
    users: npt.NDArray[np.str_]


Convert = Callable[[npt.NDArray[np.float64], str], npt.NDArray[Any]]
"""Converts a user's samples, (n, features); the text is the start of messages."""


def read_leaf(folder: Path, features: int, convert: Convert) -> Split:
    """Return the samples of all `.json` files in `folder`, in the order of their names.

    A file has `users`, `num_samples` and `user_data`. For each user, `user_data` has `x`, a list of
    `features` numbers for each sample, and `y`, a label for each. `convert` is applied to `x`.

    Raises:
        DataError: a file is missing, or has another structure; the message names it.
    """
    paths = leaf_files(folder)
    xs, ys, names = [], [], []
    for path in paths:
        for user, x, y in _users(path, features):
            # Converted at once: at 8 bytes a number, a whole data set may not fit into memory.
            xs.append(convert(x, f"{path}: user {user}"))
            ys.append(y)
            names += [user] * len(y)
    if not xs:
        raise DataError(f"{folder}: its files have no sample; make them again with LEAF")
    return Split(np.concatenate(xs), np.concatenate(ys), np.array(names, dtype=np.str_))


def leaf_files(folder: Path) -> list[Path]:
    """Return the `.json` files in `folder`, in the order of their names.

    Raises:
        DataError: there is none.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(f"{folder}: has no .json file; put those that LEAF made there")
    return paths


def _users(
    path: Path, features: int
) -> Iterator[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.int64]]]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error}); make it again with LEAF") from error
    match content:
        case {"users": list(users), "num_samples": list(sizes), "user_data": dict(data)}:
            pass
        case _:
            raise DataError(f"{path}: is not a LEAF file with users, num_samples and user_data")
    if not len(users) == len(sizes) == len(data) or set(map(str, users)) != set(data):
        raise DataError(f"{path}: users, num_samples and user_data do not have the same users")
    for user, size in zip(map(str, users), sizes, strict=True):
        match data[user]:
            case {"x": list(x), "y": list(y)} if len(x) == len(y) == size:
                if size:
                    yield (user, *_arrays(x, y, features, f"{path}: user {user}"))
            case _:
                raise DataError(f"{path}: user {user} does not have {size} samples x and labels y")


def _arrays(
    x: list[Any], y: list[Any], features: int, where: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    try:
        samples, labels = np.asarray(x, np.float64), np.asarray(y)
    except (ValueError, TypeError) as error:
        raise DataError(f"{where}: a sample is not a list of {features} numbers") from error
    if samples.shape != (len(y), features) or not np.isfinite(samples).all():
        raise DataError(f"{where}: a sample is not a list of {features} numbers")
    if labels.dtype.kind != "i" or labels.shape != (len(y),):
        raise DataError(f"{where}: a label is not a whole number")
    return samples, labels.astype(np.int64)
