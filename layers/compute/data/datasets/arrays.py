"""Arrays: a user's own data, in memory or in an `.npz` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.errors import DataError
from layers.compute.data.files import Files
from layers.compute.data.formats.npz import read_npz

_REQUIRED = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("users_train", "users_test")


@dataclass(frozen=True)
class Arrays:
    """The arrays of an `.npz` file.

    They are x_train, y_train, x_test, y_test and, if known, users_train and users_test, with shapes
    and dtypes as for `from_arrays`. No pickled object is read.

    Attributes:
        path: of the file.
    """

    path: str

    def load(self, files: Files) -> Dataset:
        """Return both splits; `files` is not used. See `DatasetSource.load`."""
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise DataError(f"{path}: there is no such file; give the path of an .npz file")
        arrays = read_npz(path, lambda names: _check_names(names, str(path)))
        return _named(arrays, str(path))


def from_arrays(
    x_train: npt.ArrayLike,
    y_train: npt.ArrayLike,
    x_test: npt.ArrayLike,
    y_test: npt.ArrayLike,
    users: npt.ArrayLike | None = None,
    users_test: npt.ArrayLike | None = None,
    *,
    classes: int | None = None,
    name: str = "arrays",
) -> Dataset:
    """Return a data set of arrays; 8-bit values stay 8-bit.

    Args:
        x_train: the training samples, numbers (n, ...), channels first.
        y_train: their labels, integers (n,) from 0.
        x_test: the test samples, (m, ...).
        y_test: their labels, (m,).
        users: the user whom each training sample is from, names or numbers (n,); None: not known.
        users_test: the same for the test samples, (m,).
        classes: how many classes there are; None: one more than the highest label.
        name: what messages call the data set.

    Raises:
        DataError: an array is not as it must be; the message names it.
    """
    inputs = {
        split: _inputs(x, f"{name}: x_{split}")
        for split, x in (("train", x_train), ("test", x_test))
    }
    labels = {
        split: _labels(y, f"{name}: y_{split}")
        for split, y in (("train", y_train), ("test", y_test))
    }
    _check_first(list(labels.values()), classes, name)
    indices = _users(users, users_test, name)
    try:
        train = Raw(inputs["train"], labels["train"], indices[0])
        test = Raw(inputs["test"], labels["test"], indices[1])
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    highest = max((int(y.max()) for y in labels.values() if len(y)), default=0)
    return Dataset(
        name=name,
        train=train,
        test=test,
        classes=highest + 1 if classes is None else classes,
        shape=train.x.shape[1:],
    )


def as_dataset(value: object, name: str) -> Dataset:
    """Return the data set that a user's function gave: a Dataset, a dict or a tuple of arrays.

    A dict has the names of an `.npz` file (see `Arrays`). A tuple has the same order: x_train,
    y_train, x_test, y_test and, if known, users_train and users_test.

    Raises:
        DataError: the value is something else, or an array is not as it must be.
    """
    if isinstance(value, Dataset):
        return value
    if isinstance(value, Mapping):
        _check_names([str(key) for key in value], name)
        return _named({str(key): array for key, array in value.items()}, name)
    if isinstance(value, tuple) and 4 <= len(value) <= 6:
        return from_arrays(*value, name=name)
    raise DataError(
        f"{name}: gave a {type(value).__name__}; it must give a Dataset, a dict of "
        f"{', '.join(_REQUIRED)}, or a tuple of these four arrays"
    )


def _named(arrays: Mapping[str, Any], name: str) -> Dataset:
    return from_arrays(
        arrays["x_train"],
        arrays["y_train"],
        arrays["x_test"],
        arrays["y_test"],
        users=arrays.get("users_train"),
        users_test=arrays.get("users_test"),
        name=name,
    )


def _check_names(names: Sequence[str], where: str) -> None:
    missing = [required for required in _REQUIRED if required not in names]
    if missing:
        raise DataError(
            f"{where}: lacks {', '.join(missing)}; it has {', '.join(names) or 'nothing'}"
        )
    unknown = [name for name in names if name not in _REQUIRED + _OPTIONAL]
    if unknown:
        raise DataError(
            f"{where}: has {', '.join(unknown)}, which is none of "
            f"{', '.join(_REQUIRED + _OPTIONAL)}; rename it or leave it out"
        )


def _inputs(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    x = _array(values, what)
    if x.dtype.kind not in "fiub":
        raise DataError(f"{what} has the dtype {x.dtype}; it must hold numbers")
    if x.dtype.kind == "f":
        broken = ~np.isfinite(x).reshape(len(x), -1).all(axis=1) if x.size else np.zeros(0, bool)
        if broken.any():
            raise DataError(f"{what} holds NaN or infinity, first in sample {int(broken.argmax())}")
    return x


def _labels(values: npt.ArrayLike, what: str) -> npt.NDArray[np.int64]:
    y, name = np.asarray(values), what.rpartition(" ")[2]
    if y.dtype.kind in "US" or (y.dtype == object and y.size and isinstance(y.flat[0], str)):
        raise DataError(
            f"{what} holds text such as {str(y.flat[0])[:40]!r}; labels must be integers from 0: "
            "names, y_train = np.unique(y_train, return_inverse=True); "
            "y_test = np.searchsorted(names, y_test)"
        )
    y = _array(values, what)
    if y.ndim != 1:
        mend = f": {name} = {name}.argmax(axis=1), if it is one-hot" if y.ndim == 2 else ""
        if y.ndim == 2 and y.shape[1] == 1:  # a column: all of its argmax are 0
            mend = f": {name} = {name}[:, 0]"
        raise DataError(
            f"{what} has shape {y.shape}; it must have one label a sample, shape (n,){mend}"
        )
    if y.dtype.kind not in "iu":
        raise DataError(
            f"{what} has the dtype {y.dtype}; labels must be integers from 0: "
            f"{name} = {name}.astype(int)"
        )
    return y.astype(np.int64)


def _check_first(labels: Sequence[npt.NDArray[np.int64]], classes: int | None, name: str) -> None:
    """Check that labels are not numbered from 1, which would make a class without any sample.

    Raises:
        DataError: they are.
    """
    low = min((int(y.min()) for y in labels if len(y)), default=0)
    high = max((int(y.max()) for y in labels if len(y)), default=0)
    if low == 1 and (classes is None or high >= classes):
        raise DataError(
            f"{name}: labels go from 1 to {high}, and must be numbered from 0: "
            "y_train, y_test = y_train - 1, y_test - 1 (if 0 is a class without samples, give "
            f"from_arrays(..., classes={high + 1}))"
        )


def _users(
    train: npt.ArrayLike | None, test: npt.ArrayLike | None, name: str
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]:
    """Return users as numbers: first those of the training split, then those of the test alone."""
    if train is None:
        if test is not None:
            raise DataError(f"{name}: has users_test without users_train; give both or none")
        return None, None
    known, train_index = np.unique(_array(train, f"{name}: users_train"), return_inverse=True)
    if test is None:
        return train_index.astype(np.int64), None
    users = {user: index for index, user in enumerate(known.tolist())}
    test_names = _array(test, f"{name}: users_test").tolist()
    test_index = [users.setdefault(user, len(users)) for user in test_names]
    return train_index.astype(np.int64), np.array(test_index, dtype=np.int64)


def _array(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.dtype == object or array.ndim == 0:
        raise DataError(f"{what} is not an array of equal rows")
    return array
