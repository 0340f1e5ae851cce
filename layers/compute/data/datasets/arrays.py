"""A user's own data: arrays in memory, in an `.npz` file, or made client by client."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, FromSettings, Raw
from layers.compute.data.files import Files
from layers.compute.data.targets import Kind, Targets, of_classes, targets_of
from layers.compute.errors import DataError, one_line
from layers.settings import Count, WholeNumber

_REQUIRED = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("users_train", "users_test")
_NUMBERED = (
    "names, y_train = np.unique(y_train, return_inverse=True); "
    "y_test = np.searchsorted(names, y_test)"
)
_MOST_CHANNELS = 4
"""The most channels of an image; a longer first axis of a sample is its height."""
_MOST_CLASSES = 100_000
"""A higher number of a class is probably a quantity, or an identifier."""
_TARGETS = (
    "targets are integers (n,) from 0 for classes, 0 or 1 (n, labels) for several labels, integers "
    "(n, places) for tokens, or floats (n,) or (n, values) for real values"
)


@dataclass(frozen=True)
class Arrays:
    """The arrays of an `.npz` file.

    They are x_train, y_train, x_test, y_test and, if known, users_train and users_test, with the
    shapes and dtypes of `from_arrays`. Pickled objects are refused.

    Attributes:
        path: of the file.
    """

    path: str

    def load(self, files: Files) -> Dataset:
        """Return both splits, if `files` allows to name a file. See `DatasetSource.load`."""
        path = files.chosen("arrays", self.path)
        arrays = read_npz(path, lambda names: _check_names(names, str(path)))
        return named(arrays, str(path))


@dataclass(frozen=True)
class Declared(FromSettings):
    """Data that clients alone have: what the samples and their targets are.

    A deployed server has no samples then; clients give their own with `--data FILE`.

    Attributes:
        shape: of a sample, channels first.
        targets: the kind of the targets.
        size: how many classes, labels or values there are, or different tokens.
        places: the length of a sequence of tokens; 0: targets are not tokens.
        tokens: whether a sample has whole numbers that the model looks up.
        local: the name by which each site of a federation knows its own file; null: none.
    """

    shape: tuple[Count, ...]
    size: Count
    targets: Kind = "classes"
    places: WholeNumber = 0
    tokens: bool = False
    local: str | None = None

    def load(self, files: Files) -> Dataset:
        """Return a data set without a sample."""
        targets = Targets(self.targets, self.size, self.places)
        return without_samples("declared", self.shape, targets, tokens=self.tokens)


def without_samples(
    name: str, shape: tuple[int, ...], targets: Targets, *, tokens: bool = False
) -> Dataset:
    """Return a data set whose samples clients alone have.

    Args:
        name: its name in messages.
        shape: of a sample, channels first.
        targets: what the targets are.
        tokens: whether a sample has whole numbers that the model looks up.
    """
    x = np.zeros((0, *shape), np.int64 if tokens else np.float32)
    y = np.zeros((0, *targets.shape), np.float32 if targets.kind == "real" else np.int64)
    return Dataset(name, Raw(x, y), Raw(x, y), targets, tuple(shape))


def own_split(
    name: str,
    arrays: Named,
    shape: tuple[int, ...],
    targets: Targets,
    split: Literal["train", "test"],
) -> Raw | None:
    """Return a split of a client's own data; None: they have no test split, which they may lack.

    Args:
        name: of their file, for messages.
        arrays: named as in an `.npz` file.
        shape: the shape that a sample must have.
        targets: what the targets of the experiment are.
        split: which one.

    Raises:
        DataError: the arrays cannot be used for samples of this shape and these targets.
    """
    _check_names([*arrays], name, _REQUIRED[:2])
    if split == "test" and "x_test" not in arrays:
        return None
    _check_names([*arrays], name, (f"x_{split}", f"y_{split}"))
    x = _inputs(arrays[f"x_{split}"], f"{name}: x_{split}")
    y = _targets(arrays[f"y_{split}"], f"{name}: y_{split}", targets)
    users, _ = _users(arrays.get("users_train") if split == "train" else None, None, name)
    try:
        raw = Raw(x, y, users)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    if not len(raw):
        raise DataError(f"{name}: x_{split} has no sample")
    if x.shape[1:] != shape:
        raise DataError(
            f"{name}: a sample of x_{split} has shape {x.shape[1:]}, and the model of the "
            f"experiment takes {shape}; reshape x_{split}"
        )
    targets.check(y, f"{name}: the labels y_{split}")
    return raw


def from_arrays(
    x_train: npt.ArrayLike,
    y_train: npt.ArrayLike,
    x_test: npt.ArrayLike,
    y_test: npt.ArrayLike,
    users: npt.ArrayLike | None = None,
    users_test: npt.ArrayLike | None = None,
    *,
    classes: int | None = None,
    targets: Targets | None = None,
    name: str = "arrays",
) -> Dataset:
    """Return a data set from arrays; 8-bit values stay 8-bit.

    Args:
        x_train: the training samples, numbers (n, ...), channels first.
        y_train: their targets: classes, integers (n,) from 0; several labels, 0 or 1 (n, labels);
            tokens, integers (n, places); or real values, floats (n,) or (n, values).
        x_test: the test samples, (m, ...).
        y_test: their targets, (m, ...).
        users: the user of each training sample, names or numbers (n,); None: not known.
        users_test: the same for the test samples, (m,).
        classes: how many classes or different tokens there are; None: one more than the highest.
        targets: what the targets are; None: what the arrays hold.
        name: its name in messages.

    Raises:
        DataError: an array has another shape, dtype or range; the message names it.
    """
    x = [_inputs(x_train, f"{name}: x_train"), _inputs(x_test, f"{name}: x_test")]
    y = [
        _targets(y_train, f"{name}: y_train", targets),
        _targets(y_test, f"{name}: y_test", targets),
    ]
    _check_classes(y, classes if targets is None else targets.size, name)
    both_users = _users(users, users_test, name)
    try:
        train, test = (Raw(*arrays) for arrays in zip(x, y, both_users, strict=True))
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    found = targets_of(y, classes) if targets is None else targets
    return Dataset(name, train, test, found, train.x.shape[1:])


def as_dataset(value: object, name: str) -> Dataset:
    """Return a user's Dataset, dict or tuple of arrays as a data set.

    A dict has the names of an `.npz` file (see `Arrays`). A tuple is x_train, y_train, x_test,
    y_test and, if known, users_train and users_test; or two datasets as PyTorch has them, for
    training and for testing, whose items are a sample and its label.

    Raises:
        DataError: the value is something else, or an array has another shape, dtype or range.
    """
    if isinstance(value, Dataset):
        return value
    if isinstance(value, Mapping):
        _check_names([str(key) for key in value], name)
        return named({str(key): array for key, array in value.items()}, name)
    if isinstance(value, tuple) and 4 <= len(value) <= 6:
        return from_arrays(*value, name=name)
    if isinstance(value, tuple) and len(value) == 2:
        train, test = (_items_of(one, name) for one in value)
        return from_arrays(*train, *test, name=name)
    raise DataError(
        f"{name}: gave an object of type {type(value).__name__}; it must give a Dataset, a dict of "
        f"{', '.join(_REQUIRED)}, a tuple of these four arrays, or a tuple of two datasets of "
        "PyTorch"
    )


def _items_of(dataset: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all samples of a dataset of PyTorch, and their labels, each as one array.

    Raises:
        DataError: it has no items, they are no pairs, or samples differ in their shape.
    """
    try:
        items = [dataset[index] for index in range(len(dataset))]
        samples, labels = zip(*items, strict=True)
        x, y = (np.stack([np.asarray(one) for one in column]) for column in (samples, labels))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name}: a {type(dataset).__name__} is not usable as data ({one_line(error)}); its "
            "items must be pairs of a sample and its label, and all samples of one shape"
        ) from error
    return x, y[:, 0] if y.shape[1:] == (1,) else y


def named(arrays: Mapping[str, Any], name: str, **known: Any) -> Dataset:
    """Return a data set from arrays that are named as in an `.npz` file; see `from_arrays`."""
    given = dict(arrays)
    return from_arrays(users=given.pop("users_train", None), name=name, **given, **known)


def _check_names(names: Sequence[str], where: str, needed: Sequence[str] = _REQUIRED) -> None:
    missing = [required for required in needed if required not in names]
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
    if x.ndim == 4 and min(x.shape[1:3]) > _MOST_CHANNELS and x.shape[3] in (1, 3):
        name = what.rpartition(" ")[2]
        raise DataError(
            f"{what} has shape {x.shape}, with the channels last; they come first: "
            f"{name} = {name}.transpose(0, 3, 1, 2)"
        )
    if x.dtype.kind == "f":
        broken = ~np.isfinite(x).reshape(len(x), -1).all(axis=1) if x.size else np.zeros(0, bool)
        if broken.any():
            raise DataError(f"{what} holds NaN or infinity, first in sample {int(broken.argmax())}")
    return x


def _targets(values: npt.ArrayLike, what: str, told: Targets | None = None) -> npt.NDArray[Any]:
    """Return targets, int64 or float32 (n, ...); real values (n,) become (n, 1).

    What the targets are is `told`, or the array says it.
    """
    y, name = _equal_rows(values, what), what.rpartition(" ")[2]
    if y.dtype.kind in "US" or (y.dtype == object and y.size and isinstance(y.flat[0], str)):
        raise DataError(
            f"{what} holds text such as {str(y.flat[0])[:40]!r}; labels must be integers from 0: "
            + _NUMBERED
        )
    y = _array(values, what)
    has = f"{what} has the dtype {y.dtype} and shape {y.shape}"
    if y.dtype.kind not in "fiub" or y.ndim > 2:
        raise DataError(f"{has}; {_TARGETS}")
    broken = y[~np.isfinite(y)] if y.dtype.kind == "f" else y[:0]
    if broken.size:
        raise DataError(f"{what} holds {broken.flat[0]}; leave these samples out")
    real = y.dtype.kind == "f"
    if told is not None and y.ndim > 1 and told.kind != "classes" and real == (told.kind == "real"):
        return y.astype(np.float32 if real else np.int64)  # `Targets.check` checks the rest
    binary, whole = bool(((y == 0) | (y == 1)).all()), bool((y == np.rint(y)).all())
    one_hot = y.ndim == 2 and y.shape[1] > 1 and binary and (y.sum(axis=1) == 1).all()
    if y.size and one_hot:
        mend = f"for classes, {name} = {name}.argmax(axis=1)"
    elif y.dtype.kind == "f":
        if not y.size or not whole or (y.ndim == 2 and not (binary and y.shape[1] > 1)):
            return y.reshape(len(y), -1).astype(np.float32)
        mend = f"for labels, {name} = {name}.astype(int)"
        mend += f"; for real values, {name} = {name}[:, None]" if y.ndim == 1 else ""
    elif y.ndim == 2 and y.shape[1] == 1:
        mend = f"for labels, {name} = {name}[:, 0]"
    elif y.dtype.kind == "b" and y.ndim == 1:
        mend = f"{name} = {name}.astype(int)"
    else:
        if y.size and y.ndim == 1 and y.min() == -1 and (np.abs(y) == 1).all():
            raise DataError(f"{what} holds -1 and 1; labels are from 0: {name} = ({name} + 1) // 2")
        return y.astype(np.int64)
    raise DataError(f"{has}, which are whole numbers: {mend}")


def _check_classes(targets: Sequence[npt.NDArray[Any]], classes: int | None, name: str) -> None:
    """Check that labels are numbers of classes.

    Raises:
        DataError: they are numbered from 1, which would make a class without any sample, or they
            are so high that they are probably something else.
    """
    if targets[0].dtype.kind == "f" or targets[0].ndim > 1:
        return
    low = min((int(y.min()) for y in targets if len(y)), default=0)
    high = max((int(y.max()) for y in targets if len(y)), default=0)
    if low == 1 and (classes is None or high >= classes):
        raise DataError(
            f"{name}: labels go from 1 to {high}, and must be numbered from 0: "
            "y_train, y_test = y_train - 1, y_test - 1 (if 0 is a class without samples, give "
            f"from_arrays(..., classes={high + 1}))"
        )
    samples = sum(map(len, targets))
    if classes is None and (high >= _MOST_CLASSES or high >= max(1_000, 10 * samples)):
        raise DataError(
            f"{name}: labels of {samples:,} samples go up to {high:,}; for real values give "
            f"floats, and number classes from 0: {_NUMBERED}"
        )


def _users(
    train: npt.ArrayLike | None, test: npt.ArrayLike | None, name: str
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]:
    """Return users as numbers; users of the training split have the lowest."""
    if train is None:
        if test is not None:
            raise DataError(f"{name}: has users_test without users_train; give both or none")
        return None, None
    known, train_index = np.unique(_ids(train, f"{name}: users_train"), return_inverse=True)
    if test is None:
        return train_index.astype(np.int64), None
    users = {user: index for index, user in enumerate(known.tolist())}
    test_names = _ids(test, f"{name}: users_test").tolist()
    test_index = [users.setdefault(user, len(users)) for user in test_names]
    return train_index.astype(np.int64), np.array(test_index, dtype=np.int64)


def _ids(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    """Return users, names or numbers (n,)."""
    users, name = _equal_rows(values, what), what.rpartition(" ")[2]
    missing = (
        sum(one is None or one != one for one in users.flat) if users.dtype.kind in "fO" else 0
    )
    if missing:
        raise DataError(
            f"{what} is None or NaN for {missing:,} of {len(users):,} samples; give each sample a "
            "user, or leave these samples out"
        )
    if users.dtype == object and users.ndim == 1:
        raise DataError(f"{what} holds objects; {name} = {name}.astype(str)")
    return _array(users, what)


def _array(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    array, name = _equal_rows(values, what), what.rpartition(" ")[2]
    if array.dtype == object and all(isinstance(one, int | float) for one in array.flat):
        raise DataError(f"{what} holds objects; for numbers, {name} = {name}.astype(float)")
    if array.dtype == object:
        first = next(iter(array.flat), None)
        raise DataError(
            f"{what} holds objects of type {type(first).__name__}; give numbers, all samples of "
            f"one shape: {name} = np.stack({name})"
        )
    if array.ndim == 0:
        raise DataError(f"{what} is not an array of equal rows; give one row for each sample")
    return array


def _equal_rows(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # of a list whose items differ in their shape
        raise DataError(
            f"{what} is not an array of equal rows ({one_line(error)}); make all samples of one "
            "shape"
        ) from None


@runtime_checkable
class FederatedData(Protocol):
    """Data that are made client by client, so that no machine holds those of all clients.

    A class whose targets are no classes has a property `targets` (`Targets`) in place of `classes`.
    The class has its settings as parameters. If it has a parameter `clients` or `seed`, it gets the
    number of clients, or a seed derived from the experiment's. The result of a method must depend
    only on the settings and on its argument, because several processes call it.
    """

    def client(self, number: int) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return a client's training samples, (n, ...), and their labels, integers (n,)."""

    def sizes(self) -> npt.ArrayLike:
        """Return each client's number of training samples, (clients,); or one number for all."""

    def test(self) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return the samples on which the server evaluates, (m, ...), and their labels, (m,)."""

    @property
    def classes(self) -> int:
        """How many classes there are; labels are from 0 to `classes` - 1."""


@dataclass(frozen=True, eq=False)
class CheckedFederatedData:
    """Federated data whose arrays are checked when they are made.

    Attributes:
        name: their name in messages.
        source: makes or reads them.
        clients: how many clients there are.
        test: the server's samples.
        sizes: each client's number of training samples, int64 (clients,); or one number for all.
        targets: what the targets of the samples are.
        shape: the shape of a sample, channels first.
        words: the word of each token of a text; empty if the samples are not text.
    """

    name: str
    source: FederatedData
    clients: int
    test: Raw
    sizes: npt.NDArray[np.int64] | int
    targets: Targets
    shape: tuple[int, ...]
    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: FederatedData, clients: int, name: str) -> CheckedFederatedData:
        """Return the checked data of a source; no client's samples are made.

        Raises:
            DataError: the test samples or the sizes have another shape, dtype or range.
        """
        declared = getattr(source, "targets", None)
        targets = of_classes(int(source.classes)) if declared is None else declared
        test = _checked(source.test(), targets, f"{name}: test")
        return cls(
            name=name,
            source=source,
            clients=clients,
            test=test.test,
            sizes=_sizes(source.sizes(), clients, name),
            targets=targets,
            shape=test.shape,
            words=tuple(getattr(source, "words", ())),
        )

    def client(self, number: int) -> Raw:
        """Return a client's training samples.

        Raises:
            DataError: the samples have another shape, dtype or range, or number.
        """
        where = f"{self.name}: client {number}"
        made = _checked(self.source.client(number), self.targets, where)
        announced = self.sizes if isinstance(self.sizes, int) else int(self.sizes[number])
        if len(made.train) != announced or made.shape != self.shape:
            raise DataError(
                f"{where}: has {len(made.train)} samples of shape {made.shape}, but sizes() says "
                f"{announced}, and a test sample has shape {self.shape}"
            )
        return made.train


def _checked(given: Any, targets: Targets, where: str) -> Dataset:
    """Return samples and labels as both splits of a data set, which checks them."""
    if not isinstance(given, tuple) or len(given) != 2:
        kind = type(given).__name__
        raise DataError(f"{where}: gave an object of type {kind}; it must give samples and labels")
    return from_arrays(*given, *given, targets=targets, name=where)


def _sizes(given: npt.ArrayLike, clients: int, name: str) -> npt.NDArray[np.int64] | int:
    sizes = np.asarray(given)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (clients,)):
        raise DataError(
            f"{name}: sizes() has shape {sizes.shape} and dtype {sizes.dtype}; it must be one "
            f"whole number, or one for each of the {clients} clients"
        )
    if sizes.min() < 0 or sizes.max() < 1:
        raise DataError(f"{name}: sizes() must be 0 or more, and above 0 for a client at least")
    return int(sizes) if sizes.ndim == 0 else sizes.astype(np.int64)


# The errors that numpy and zipfile raise for a damaged file.
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    SyntaxError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)

Named = dict[str, npt.NDArray[Any]]


def read_npz(path: Path, check: Callable[[Sequence[str]], None] | None = None) -> Named:
    """Return all arrays of the file at `path`, by name.

    `check` is called with the arrays' names before an array is read.

    Raises:
        DataError: the file cannot be read, or `check` raised the error.
    """
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is not an .npz file; write it with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = list(file.files)
            if check is not None:
                check(names)
            return {name: file[name] for name in names}
    except DAMAGED as error:
        raise DataError(f"{path}: cannot be read ({one_line(error)})") from error


def take(
    arrays: Mapping[str, npt.NDArray[Any]],
    name: str,
    kinds: str,
    shape: tuple[int | None, ...],
    where: str,
) -> npt.NDArray[Any]:
    """Return the array `name` with its dtype and shape checked.

    Args:
        arrays: by name.
        name: of the array.
        kinds: the allowed kinds of dtypes, numpy's letters.
        shape: the expected shape; None is any length.
        where: the start of messages.

    Raises:
        DataError: the array is missing, or has another dtype or shape.
    """
    if name not in arrays:
        raise DataError(f"{where}: lacks {name}; it has {', '.join(arrays) or 'nothing'}")
    array = arrays[name]
    if array.dtype.kind not in kinds:
        raise DataError(f"{where}: {name} has the dtype {array.dtype}, which is not allowed")
    fits = len(array.shape) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("n" if size is None else str(size) for size in shape)
        raise DataError(f"{where}: {name} has shape {array.shape}, not ({wanted})")
    return array
