"""Data sets of Hugging Face, from its hub or from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.dataset import Dataset, FromSettings, drawn_out
from layers.compute.data.datasets.arrays import named
from layers.compute.data.datasets.image_folder import Size, pixels, stacked
from layers.compute.data.files import Files
from layers.compute.errors import DataError, one_line, unknown
from layers.extras import install
from layers.settings import Fraction


@dataclass(frozen=True)
class HuggingFace(FromSettings):
    """A data set of Hugging Face: its name on the hub, or a folder.

    A folder is one of `save_to_disk`, or has CSV, JSON or Parquet files. Images become uint8 with
    channels first. Class labels keep their names, text in the target becomes classes in sorted
    order, and floats are real values. Needs the extra `huggingface`.

    Attributes:
        path: the name on the hub, such as `ylecun/mnist`, or the folder.
        features: the column that is the input: images, or arrays of one shape; or several columns
            of numbers, in this order.
        target: the column to learn, or several.
        config: the name of a configuration; null: the only one, or the default.
        split: the training split.
        test_split: the test split; null: `test` decides.
        test: the share of each client that is for testing, drawn once; of each class if there is no
            column `client`.
        client: the column that says whose a sample is; `partition: by-user` makes each value a
            client.
        size: height and width that all images get; null: all images have one size.
    """

    path: str
    features: str | tuple[str, ...]
    target: str | tuple[str, ...]
    config: str | None = None
    split: str = "train"
    test_split: str | None = None
    test: Fraction = 0.2
    client: str | None = None
    size: Size | None = None

    def load(self, files: Files) -> Dataset:
        """Return both splits; see `DatasetSource.load`."""
        splits = self._splits(files)
        arrays: dict[str, npt.NDArray[Any]] = {}
        names: tuple[str, ...] = ()
        for name, split in splits.items():
            columns = (self.features,) if isinstance(self.features, str) else self.features
            arrays[f"x_{name}"] = self._stack(split, columns)
            columns = (self.target,) if isinstance(self.target, str) else self.target
            arrays[f"y_{name}"] = self._stack(split, columns, targets=True)
            if self.client is not None:
                arrays[f"users_{name}"] = self._column(split, self.client, True)
        if isinstance(self.target, str):
            names = self._number(arrays, splits["train"].features[self.target])
        if "test" not in splits:
            groups = arrays.get("users_train", arrays["y_train"])
            real = groups.dtype.kind == "f" or groups.ndim > 1
            test = drawn_out(np.zeros(len(groups)) if real else groups, self.test)
            for key in [*arrays]:
                whole = arrays[key]
                arrays[key] = whole[~test]
                arrays[key.replace("train", "test")] = whole[test]
        return replace(named(arrays, self.path, classes=len(names) or None), names=names)

    def _splits(self, files: Files) -> dict[str, Any]:
        """Return the training split, and the test split if there is one."""
        path = Path(self.path).expanduser()
        local = path.exists()
        if local or not files.named:
            files.chosen("huggingface", self.path)
        try:
            import datasets
        except ImportError as error:
            raise DataError(
                f"{self.path}: needs the package datasets, which cannot be imported "
                f"({one_line(error)}); {install('huggingface')}"
            ) from None
        try:
            if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
                found = datasets.load_from_disk(str(path))
            else:
                found = datasets.load_dataset(
                    str(path) if local else self.path,
                    self.config,
                    cache_dir=str(files.cache_of("huggingface")),
                    download_config=datasets.DownloadConfig(local_files_only=not files.download),
                )
        except (OSError, ValueError, LookupError, datasets.exceptions.DatasetsError) as error:
            raise DataError(f"{self.path}: cannot be read ({one_line(error)})") from error
        if not isinstance(found, Mapping):
            found = {self.split: found}
        splits = {"train": self.split, "test": self.test_split}
        for name in splits.values():
            if name is not None and name not in found:
                raise DataError(f"{self.path}: {unknown('split', name, found)}")
        return {key: found[name] for key, name in splits.items() if name is not None}

    def _stack(
        self, split: Any, columns: tuple[str, ...], *, targets: bool = False
    ) -> npt.NDArray[Any]:
        """Return one column, or several as (n, columns); one of `targets` may be (n,)."""
        arrays = [self._column(split, name, targets) for name in columns]
        if len(arrays) == 1:
            return arrays[0][:, None] if arrays[0].ndim == 1 and not targets else arrays[0]
        for name, array in zip(columns, arrays, strict=True):
            if array.ndim != 1:
                raise DataError(f"{self.path}: {name} has arrays; give it alone, not with others")
        return np.stack(arrays, axis=1)

    def _column(self, split: Any, name: str, target: bool) -> npt.NDArray[Any]:
        import datasets

        if name not in split.features:
            raise DataError(f"{self.path}: {unknown('column', name, split.features)}")
        feature, column = split.features[name], split.select_columns([name])
        if isinstance(feature, datasets.Image):
            what = f"{self.path}: {name}"
            return stacked([pixels(row[name], self.size, what) for row in column], what)
        values = np.asarray(column.with_format("numpy")[:][name])
        if values.dtype.kind == "b":
            values = values.astype(np.int64)
        if values.dtype.kind not in "fiu" and not target:
            raise DataError(
                f"{self.path}: {name} is {feature}, not numbers of one shape; make them with map() "
                "of the package datasets, such as tokens of one length, and save_to_disk()"
            )
        return values

    def _number(self, arrays: dict[str, npt.NDArray[Any]], feature: Any) -> tuple[str, ...]:
        """Make numbers of a target that is text, and return the names of the classes."""
        import datasets

        if isinstance(feature, datasets.ClassLabel):
            return tuple(feature.names)
        keys = [key for key in ("y_train", "y_test") if key in arrays]
        if arrays["y_train"].dtype.kind not in "OU":
            return ()
        texts = [arrays[key].tolist() for key in keys]
        names = sorted({one for text in texts for one in text}, key=str)
        if not all(isinstance(one, str) for one in names):
            raise DataError(f"{self.path}: {self.target} is missing in a row; leave it out")
        for key, text in zip(keys, texts, strict=True):
            arrays[key] = np.searchsorted(names, text).astype(np.int64)
        return tuple(names)
