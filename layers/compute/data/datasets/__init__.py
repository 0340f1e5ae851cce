"""The data sets that an experiment can name, and how one is loaded."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Protocol

from layers.compute.data.datasets.arrays import Arrays, as_dataset, from_arrays
from layers.compute.data.datasets.cifar10 import Cifar10
from layers.compute.data.datasets.dataset import Dataset, Raw
from layers.compute.data.datasets.digits import Digits
from layers.compute.data.datasets.fashion_mnist import FashionMnist
from layers.compute.data.datasets.femnist import Femnist
from layers.compute.data.datasets.files import Files
from layers.compute.data.datasets.mnist import Mnist
from layers.compute.data.datasets.sentiment140 import Sentiment140
from layers.compute.data.datasets.svhn import Svhn
from layers.compute.data.download import Progress
from layers.compute.data.errors import DataError

__all__ = [
    "DATASETS",
    "DataError",
    "Dataset",
    "Files",
    "Raw",
    "Source",
    "as_dataset",
    "from_arrays",
    "load",
]


class Source(Protocol):
    """A data set as an experiment names it: its settings, and how it is read."""

    def load(self, files: Files) -> Dataset:
        """Read it, from the places that ``files`` knows; raises DataError."""


DATASETS: dict[str, type[Source]] = {
    "mnist": Mnist,
    "fashion-mnist": FashionMnist,
    "cifar-10": Cifar10,
    "svhn": Svhn,
    "femnist": Femnist,
    "sentiment140": Sentiment140,
    "digits": Digits,
    "arrays": Arrays,
}


def load(
    name: str,
    *,
    root: Path | None = None,
    cache: Path | None = None,
    download: bool = True,
    progress: Progress | None = None,
    **settings: Any,
) -> Dataset:
    """Load the data set ``name`` with its own ``settings``; the places are those of ``Files``.

    Raises DataError for a name that there is not, and for files that are missing or damaged.
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise DataError(f"there is no data set {name!r}{hint}; there are {', '.join(DATASETS)}")
    return DATASETS[name](**settings).load(Files(root, cache, download, progress))
