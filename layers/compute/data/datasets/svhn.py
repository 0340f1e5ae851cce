"""SVHN, cropped: 73,257 and 26,032 digits of house numbers in colour (Netzer et al., 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.errors import DataError
from layers.compute.data.files import Files, Remote
from layers.compute.data.formats.npz import DAMAGED, read_npz, take
from layers.compute.data.hold_out import check_share, held_out

_NAME = "svhn"
_SHAPE = (3, 32, 32)
_CLASSES = 10
_FROM = "http://ufldl.stanford.edu/housenumbers/"

TRAIN = Remote(
    "train_32x32.mat",
    (f"{_FROM}train_32x32.mat",),
    "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    182_040_794,
)
TEST = Remote(
    "test_32x32.mat",
    (f"{_FROM}test_32x32.mat",),
    "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    64_275_384,
)
EXCERPT = "svhn_train_first1083.npz"

Split = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Svhn:
    """Samples of shape (3, 32, 32), red, green, blue, uint8 from 0 to 255; 10 classes, the digits.

    The files are `train_32x32.mat` and `test_32x32.mat` as they are published (their label 10 is
    the digit 0), or `svhn_train_first1083.npz` (x, y), the first 1,083 training images. This has no
    test images, so `hold_out` must be set.

    Attributes:
        hold_out: the share of each digit's training images, the last ones, that is tested on
            instead of the published test images; 0: the published split.
    """

    hold_out: float = 0.0

    def __post_init__(self) -> None:
        check_share(self.hold_out, _NAME)

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        path = files.find(_NAME, (TRAIN.name, EXCERPT), TRAIN)
        x, y = _excerpt(path) if path.suffix == ".npz" else _mat(path)
        if self.hold_out:
            test = held_out(y, self.hold_out)
            splits = Raw(x[~test], y[~test]), Raw(x[test], y[test])
        elif path.suffix == ".npz":
            raise DataError(
                f"{path}: has no test images; set hold_out, e.g. data: {{name: svhn, "
                f"hold_out: 0.2}}, or put {TRAIN.name} and {TEST.name} of {_FROM} beside it"
            )
        else:
            splits = Raw(x, y), Raw(*_mat(files.find(_NAME, (TEST.name,), TEST)))
        return Dataset(_NAME, *splits, classes=_CLASSES, shape=_SHAPE)


def _mat(path: Path) -> Split:
    # Imported here: no other data set needs it.
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        arrays = loadmat(path, variable_names=["X", "y"])
    except (*DAMAGED, IndexError, AttributeError, MatReadError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{path}: cannot be read ({reason}); delete it and fetch it again"
        ) from error
    arrays = {name: array for name, array in arrays.items() if not name.startswith("__")}
    x = take(arrays, "X", "u", (32, 32, 3, None), str(path))
    y = take(arrays, "y", "uif", (None, 1), str(path))[:, 0].astype(np.int64)
    return _split(x.transpose(3, 2, 0, 1), y, 1, 10, path)


def _excerpt(path: Path) -> Split:
    arrays: dict[str, npt.NDArray[Any]] = read_npz(path)
    x = take(arrays, "x", "u", (None, 32, 32, 3), str(path))
    y = take(arrays, "y", "ui", (None,), str(path)).astype(np.int64)
    return _split(x.transpose(0, 3, 1, 2), y, 0, 9, path)


def _split(
    x: npt.NDArray[Any], y: npt.NDArray[np.int64], lowest: int, highest: int, path: Path
) -> Split:
    if x.dtype != np.uint8 or len(x) != len(y) or not len(x):
        raise DataError(
            f"{path}: has {len(x)} images of {x.dtype} and {len(y)} labels; the images must be "
            "uint8, and as many as the labels; delete it and fetch it again"
        )
    if y.min() < lowest or y.max() > highest:
        raise DataError(
            f"{path}: labels go from {y.min()} to {y.max()}, not {lowest} to {highest}; "
            "delete it and fetch it again"
        )
    return np.ascontiguousarray(x), y % 10
