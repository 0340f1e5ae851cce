"""The data sets that an experiment can name.

To add one, write its class and add it to `DATASETS`, or to `FEDERATED` if its samples are made
client by client. A data set knows no partition and no model.
"""

from __future__ import annotations

from typing import Protocol

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.datasets.arrays import (
    Arrays,
    CheckedFederatedData,
    Declared,
    FederatedData,
    as_dataset,
    from_arrays,
)
from layers.compute.data.datasets.femnist import Femnist
from layers.compute.data.datasets.hugging_face import HuggingFace
from layers.compute.data.datasets.image_folder import ImageFolder
from layers.compute.data.datasets.images import Cifar10, Digits, FashionMnist, Mnist, Svhn
from layers.compute.data.datasets.sentiment140 import Sentiment140
from layers.compute.data.datasets.synthetic import Blobs, Synthetic
from layers.compute.data.datasets.tables import Table
from layers.compute.data.files import Files
from layers.compute.errors import DataError


class DatasetSource(Protocol):
    """A data set that an experiment can name: its settings, and how to read it."""

    def load(self, files: Files) -> Dataset:
        """Return both splits, read from the folders of `files`.

        Raises:
            DataError: a file is missing, cannot be downloaded, or is damaged.
        """


DATASETS: dict[str, type[DatasetSource]] = {
    "mnist": Mnist,
    "fashion-mnist": FashionMnist,
    "cifar-10": Cifar10,
    "svhn": Svhn,
    "femnist": Femnist,
    "sentiment140": Sentiment140,
    "digits": Digits,
    "synthetic": Synthetic,
    "arrays": Arrays,
    "table": Table,
    "images": ImageFolder,
    "huggingface": HuggingFace,
    "declared": Declared,
}

FEDERATED: dict[str, type[FederatedData]] = {"blobs": Blobs}
