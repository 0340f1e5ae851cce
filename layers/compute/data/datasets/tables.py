"""Tables: CSV and Parquet files whose rows are samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, FromSettings, drawn_out
from layers.compute.data.datasets.arrays import Named, named, without_samples
from layers.compute.data.files import Files
from layers.compute.data.targets import Targets
from layers.compute.errors import DataError, one_line, unknown
from layers.extras import install
from layers.settings import Fraction

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Value = str | int | bool
ENDINGS = (".csv", ".tsv", ".txt", ".parquet")
MOST_CLASSES = 100
"""Different whole numbers of a target above which they are probably no classes."""
MOST_VALUES = 1_000
"""Different values of a column above which they are probably no categories."""
_NUMBER = re.compile(r"[-+]?\d*\.?\d+([eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"-?\d*,\d+")


@dataclass(frozen=True)
class Table(FromSettings):
    """The rows of a CSV or Parquet file, one sample each, as float32 (columns,).

    Columns of numbers and of truth values are inputs, in the order of the file. Separator and
    decimal point of a CSV file are read from its first lines. Needs the extra `table`.

    Without a path, only clients have samples: `columns` names the inputs, and `classes` or
    `targets` says what the target is. A client reads its own file, `fedmx client --data FILE.csv`,
    with these settings and all others; `columns`, and `classes` if the targets are classes, must
    be given then, so that all clients have the same order.

    Attributes:
        target: the column to learn, or several.
        path: of the file; null: clients alone have samples.
        columns: the inputs, in this order; null: all columns but those that have another use.
        drop: columns that are not used.
        client: the column that says whose a row is; `partition: by-user` makes each value a client.
        split: the column that says `train` or `test`; null: `test` decides.
        test: the share of the rows of each client that are for testing, drawn once; of each class
            if there is no column `client`.
        targets: what the target is; null: floats are real values, other values of one column are
            classes, and 0 and 1 in several columns are labels.
        classes: the values of the target, in the order of their numbers; null: sorted.
        categories: `one-hot` makes a column of text one input for each value, sorted; a mapping
            from columns to their values does it for these; `refuse` refuses text.
        missing: `mean` puts the mean of the training rows where an input is missing, `zero` puts
            0, `drop-rows` leaves these rows out, and `refuse` refuses them.
        separator: between the columns of a CSV file; null: the file says it.
        decimal: the decimal point of a CSV file; null: the file says it.
        encoding: of a CSV file, such as `latin-1`.
        local: the name by which each site of a federation knows its own file; null: none.
    """

    target: str | tuple[str, ...]
    path: str | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    client: str | None = None
    split: str | None = None
    test: Fraction = 0.2
    targets: Literal["classes", "multi-label", "real"] | None = None
    classes: tuple[Value, ...] | None = None
    categories: Literal["refuse", "one-hot"] | Mapping[str, tuple[Value, ...]] = "refuse"
    missing: Literal["refuse", "mean", "zero", "drop-rows"] = "refuse"
    separator: str | None = None
    decimal: str | None = None
    encoding: str = "utf-8"
    local: str | None = None

    def __post_init__(self) -> None:
        for name in self._targets:
            if name in (self.columns or ()):
                raise DataError(f"table: {name} is a target and in columns; take it out of one")

    def load(self, files: Files) -> Dataset:
        """Return both splits, if `files` allows to name a file. See `DatasetSource.load`."""
        if self.path is None:
            return self._without_samples()
        path = files.chosen("table", self.path)
        frame = self._frame(path, self._used)
        kind = self._kind(frame, path)
        names = self._classes(frame, path) if kind == "classes" else ()
        arrays = self._arrays(frame, kind, names, path)
        if "x_test" not in arrays:
            raise DataError(f"{path}: has too few rows for a test split")
        targets = Targets(kind, len(names) or len(self._targets))
        return replace(named(arrays, str(path), targets=targets), names=names)

    def own(self, path: Path, targets: Targets) -> Named:
        """Return the arrays of a client's own file, named as in an `.npz` file.

        Args:
            path: the file, which may lack the columns `client` and `split`.
            targets: what the targets of the experiment are.

        Raises:
            DataError: the file cannot be used, or the experiment does not say enough to read it.
        """
        frame = self._frame(path, [*self._targets, *(self.columns or ())])
        names: tuple[str, ...] = ()
        if targets.kind == "classes":
            if self.classes is None:
                self._ask(path, "classes", self._classes(frame, path))
            names = self._names
        if self.columns is None:
            self._ask(path, "columns", self._inputs(frame))
        return self._arrays(frame, targets.kind, names, path, told=True)

    def _ask(self, path: Path, setting: str, here: Sequence[str]) -> None:
        raise DataError(
            f"{path}: the experiment does not say compute.data.{setting}, without which clients "
            f"may differ in their order; add {setting}: [{', '.join(here)}] to it"
        )

    @property
    def _targets(self) -> tuple[str, ...]:
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def _used(self) -> list[str]:
        """The columns that must be there."""
        extra = [one for one in (self.client, self.split) if one is not None]
        return [*self._targets, *extra, *self.drop, *(self.columns or ())]

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes or ()))

    def _without_samples(self) -> Dataset:
        kind = "classes" if self.targets is None and self.classes else self.targets
        if self.columns is None or kind is None or (kind == "classes" and not self.classes):
            raise DataError(
                "table: without a path, clients alone have samples; give columns, and classes or "
                "targets (real or multi-label)"
            )
        values = self.categories if isinstance(self.categories, Mapping) else {}
        size = sum(len(values.get(one, "1")) for one in self.columns)
        targets = Targets(kind, len(self._names) or len(self._targets))
        return replace(without_samples("table", (size,), targets), names=self._names)

    def _frame(self, path: Path, needed: Sequence[str]) -> DataFrame:
        """Return the file, after a check that it has these columns."""
        frame = _read(path, self.separator, self.decimal, self.encoding)
        for name in needed:
            if name not in frame.columns:
                raise DataError(f"{path}: {unknown('column', name, frame.columns)}")
        return frame

    def _inputs(self, frame: DataFrame) -> list[str]:
        if self.columns is not None:
            return list(self.columns)
        other = {*self._targets, self.client, self.split, *self.drop}
        return [name for name in frame.columns if name not in other]

    def _kind(self, frame: DataFrame, path: Path) -> Literal["classes", "multi-label", "real"]:
        """Return what the targets are."""
        if self.targets is not None:
            return self.targets
        columns = [frame[name] for name in self._targets]
        if any(column.dtype.kind == "f" for column in columns):
            return "real"
        if len(columns) > 1:
            binary = all(set(column.dropna()) <= {0, 1} for column in columns)
            return "multi-label" if binary else "real"
        different = columns[0].nunique()
        if self.classes is None and columns[0].dtype.kind in "iu" and different > MOST_CLASSES:
            raise DataError(
                f"{path}: {self._targets[0]} has {different:,} different whole numbers; say "
                "targets: real if they are quantities, or targets: classes"
            )
        return "classes"

    def _classes(self, frame: DataFrame, path: Path) -> tuple[str, ...]:
        """Return the names of the classes."""
        if len(self._targets) > 1:
            raise DataError(f"{path}: targets: classes are in one column, not {self.target}")
        return self._names or _sorted_values(frame[self._targets[0]])

    def _arrays(
        self, frame: DataFrame, kind: str, classes: tuple[str, ...], path: Path, told: bool = False
    ) -> Named:
        """Return the arrays of a file; `told`: the settings alone say the values of categories."""
        inputs = self._inputs(frame)
        if not inputs:
            raise DataError(f"{path}: has no column besides {', '.join(self._used)}")
        extra = [one for one in (self.client, self.split) if one and one in frame.columns]
        frame = self._complete(frame, inputs, [*self._targets, *extra], path)
        y = self._y(frame, kind, classes, path)
        user = np.array(frame[self.client].tolist()) if self.client in frame.columns else None
        test = self._test(frame, user if user is not None else y if classes else None, path)
        parts = [self._x(frame[name], test, path, told) for name in inputs]
        x = np.concatenate(parts, axis=1).astype(np.float32)
        arrays = {"x_train": x[~test], "y_train": y[~test]}
        if test.any():
            arrays |= {"x_test": x[test], "y_test": y[test]}
        if user is not None:
            arrays["users_train"] = user[~test]
            if test.any():
                arrays["users_test"] = user[test]
        return arrays

    def _complete(
        self, frame: DataFrame, inputs: list[str], others: list[str], path: Path
    ) -> DataFrame:
        """Return the rows without missing values, except in inputs that are filled."""
        checked = others if self.missing in ("mean", "zero") else [*inputs, *others]
        missing = frame[checked].isna()
        if self.missing != "drop-rows":
            for name, number in missing.sum().items():
                if number:
                    other = f", missing: mean or drop: [{name}]" if name in inputs else ""
                    raise DataError(
                        f"{path}: {name} is missing in {number:,} of {len(frame):,} rows; give "
                        f"missing: drop-rows{other}"
                    )
        return frame[~missing.any(axis=1)]

    def _y(
        self, frame: DataFrame, kind: str, classes: tuple[str, ...], path: Path
    ) -> npt.NDArray[Any]:
        if kind != "classes":
            columns = [_numbers(frame[name], path) for name in self._targets]
            y = np.stack(columns, axis=1)
            return y.astype(np.float32) if kind == "real" else _whole(y, path)
        (name,) = self._targets
        numbers = {one: number for number, one in enumerate(classes)}
        found = frame[name].map(str).to_numpy(object)
        for one in found:
            if one not in numbers:
                raise DataError(
                    f"{path}: {name} is {one!r} in a row, which is none of the classes "
                    f"{', '.join(classes)}"
                )
        return np.array([numbers[one] for one in found], dtype=np.int64)

    def _test(
        self, frame: DataFrame, groups: npt.NDArray[Any] | None, path: Path
    ) -> npt.NDArray[np.bool_]:
        """Return which rows are for testing; without `groups` all rows are one group."""
        if self.split in frame.columns:
            said = frame[self.split].to_numpy(str)
            other = sorted({*said.tolist()} - {"train", "test"})
            if other:
                raise DataError(f"{path}: {self.split} says {other[0]!r}, not train or test")
            return np.asarray(said == "test")
        return drawn_out(np.zeros(len(frame)) if groups is None else groups, self.test)

    def _x(
        self, column: Series, test: npt.NDArray[np.bool_], path: Path, told: bool
    ) -> npt.NDArray[np.float64]:
        """Return a column as inputs, (n, 1), or (n, values) if it is made one-hot."""
        given = self.categories.get(column.name) if isinstance(self.categories, Mapping) else None
        if given is not None or not _is_number(column):
            return self._one_hot(column, given, path, told)
        x = _numbers(column, path)
        train = x[~test & ~np.isnan(x)]
        fill = train.mean() if self.missing == "mean" and train.size else 0.0
        return np.where(np.isnan(x), fill, x)[:, None]

    def _one_hot(
        self, column: Series, given: tuple[Value, ...] | None, path: Path, told: bool
    ) -> npt.NDArray[np.float64]:
        if column.dtype.kind in "mM":
            raise DataError(
                f"{path}: {column.name} holds times; make numbers of them, or {_drop(column)}"
            )
        values = _sorted_values(column) if given is None else tuple(map(str, given))
        if len(values) > MOST_VALUES:
            raise DataError(
                f"{path}: {column.name} has {len(values):,} different values, and each would be a "
                f"column; {_drop(column)}"
            )
        if given is None and (self.categories != "one-hot" or told):
            listed = f"{{{column.name}: [{', '.join(values)}]}}" if told else "one-hot"
            text = next((one for one in values if not _NUMBER.fullmatch(one)), "")
            raise DataError(
                f"{path}: {column.name} holds text such as {text[:40]!r}; give "
                f"categories: {listed}, or {_drop(column)}"
            )
        there = column[column.notna()].map(str)
        other = sorted({*there} - {*values})
        if other:
            raise DataError(
                f"{path}: {column.name} is {other[0]!r} in a row, which is none of its categories "
                f"{', '.join(values)}"
            )
        text = column.map(str).to_numpy(object)
        one_hot = np.stack([text == value for value in values], axis=1)
        return np.asarray(one_hot, np.float64)


def _drop(column: Series) -> str:
    return f"drop: [{column.name}]"


def _is_number(column: Series) -> bool:
    return column.dtype.kind in "biuf"


def _numbers(column: Series, path: Path) -> npt.NDArray[np.float64]:
    """Return a column as float64, NaN where a value is missing."""
    if not _is_number(column):
        first = next(iter(column.dropna()), "")
        raise DataError(f"{path}: {column.name} holds {str(first)[:40]!r}, which is not a number")
    numbers: npt.NDArray[np.float64] = column.to_numpy(np.float64, na_value=np.nan)
    return numbers


def _whole(y: npt.NDArray[np.float64], path: Path) -> npt.NDArray[np.int64]:
    if not ((y == 0) | (y == 1)).all():
        raise DataError(f"{path}: targets: multi-label needs 0 or 1 in each of the target columns")
    return y.astype(np.int64)


def _sorted_values(column: Series) -> tuple[str, ...]:
    """Return the different values of a column as text, in their order."""
    values = column.dropna().unique().tolist()
    return tuple(map(str, sorted(values, key=None if _is_number(column) else str)))


def _read(path: Path, separator: str | None, decimal: str | None, encoding: str) -> DataFrame:
    """Return a file as a frame whose columns have names.

    Raises:
        DataError: a package is missing, or the file cannot be read.
    """
    if path.suffix in (".xls", ".xlsx", ".ods"):
        raise DataError(f"{path}: is no CSV or Parquet file; save the sheet as CSV")
    try:
        import pandas

        if path.suffix == ".parquet":
            frame = pandas.read_parquet(path, engine="pyarrow", dtype_backend="numpy_nullable")
        else:
            encoding = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
            with path.open(encoding=encoding) as file:
                head = [line for _, line in zip(range(100), file, strict=False)]
            separator = separator or _separator(head)
            frame = pandas.read_csv(
                path,
                sep=separator,
                decimal=decimal or _decimal(head, separator),
                encoding=encoding,
                skipinitialspace=True,
                dtype_backend="numpy_nullable",
            )
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: is not {encoding.removesuffix('-sig')} ({one_line(error)}); say its "
            "encoding, such as encoding: latin-1"
        ) from None
    except ImportError as error:  # pandas imports pyarrow
        raise DataError(
            f"{path}: a table needs pandas and pyarrow, which cannot be imported "
            f"({one_line(error)}); {install('table')}"
        ) from None
    except (ValueError, OSError, LookupError) as error:
        raise DataError(f"{path}: cannot be read ({one_line(error)})") from error
    frame.columns = frame.columns.map(str)
    if all(re.fullmatch(r"-?\d+([.,]\d+)*", name) for name in frame.columns):
        raise DataError(f"{path}: the first line has numbers; it must name the columns")
    if frame.empty:
        raise DataError(f"{path}: there are no rows below the header")
    return frame


def _separator(head: Sequence[str]) -> str:
    """Return what separates the columns of a file, by its header."""
    bare = re.sub(r'"[^"]*"', "", "".join(head[:1]))
    return max(",;\t|", key=bare.count)


def _decimal(head: Sequence[str], separator: str) -> str:
    """Return the decimal point of a file, by its first lines."""
    cells = [cell.strip(' "\n') for line in head[1:] for cell in line.split(separator)]
    return "," if separator != "," and any(map(_DECIMAL_COMMA.fullmatch, cells)) else "."
