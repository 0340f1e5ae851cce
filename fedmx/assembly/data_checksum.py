"""The SHA-256 of data, so that two machines can tell without any sample that they have the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from layers.compute.data.dataset import Dataset, Raw
from layers.compute.data.datasets.federated import CheckedFederatedData
from layers.compute.data.partitions.partition import GroupedRows


def data_sha256(data: Dataset | CheckedFederatedData) -> str:
    """Return the SHA-256 (hex) of a data set as it was loaded, before it is normalised.

    It is over the samples, labels and users of both splits: the dtype, the shape and the bytes. Of
    data that come client by client it is over the test samples and the clients' sizes.
    """
    digest = hashlib.sha256(b"fedmx data 1\n")
    _add_split(digest, "test", data.test)
    if isinstance(data, Dataset):
        _add_split(digest, "train", data.train)
    else:
        each = data.sizes
        digest.update(json.dumps(each if isinstance(each, int) else each.tolist()).encode())
    return digest.hexdigest()


def partition_sha256(rows: GroupedRows) -> str:
    """Return the SHA-256 (hex) of the rows of each client."""
    digest = hashlib.sha256(b"fedmx partition 1\n")
    _add_array(digest, "rows", rows.rows)
    _add_array(digest, "ends", rows.ends)
    return digest.hexdigest()


def _add_split(digest: Any, split: str, raw: Raw) -> None:
    _add_array(digest, f"{split}.x", raw.x)
    _add_array(digest, f"{split}.y", raw.y)
    if raw.users is not None:
        _add_array(digest, f"{split}.users", raw.users)


def _add_array(digest: Any, name: str, array: np.ndarray) -> None:
    """Add an array with its name, dtype and shape, little-endian."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest.update(f"\n{name} {plain.dtype.str} {plain.shape}\n".encode())
    digest.update(plain.reshape(-1).view(np.uint8).data)
