"""Assets: training samples that clients receive as a file.

The file is in the safetensors format. It holds `x` (n, ...) as the data set stores it, labels `y`
(n,) in int64 and, where stored values are normalised, float64 `scale`, `mean` and `std` (one
number, or one per channel). So pixels are sent as bytes, and a client can make the model's inputs
from the file alone. The same samples give the same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedmx.errors import FedmxError
from fedmx.protocol.messages import AnnouncedAsset
from fedmx.run.durable import write_durably
from layers.compute.data.dataset import Normalise, Samples, materialise
from layers.compute.data.datasets import Raw
from layers.compute.errors import DataError
from layers.network import file_wire_size


@dataclass(frozen=True)
class AssetFile:
    """An asset's file.

    Attributes:
        name: name of the asset, as a hook declares it.
        content: content of the file.
    """

    name: str
    content: bytes

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes."""
        return len(self.content)

    @property
    def announced(self) -> AnnouncedAsset:
        """The message in which the server announces the file to clients."""
        return AnnouncedAsset(self.name, self.sha256, self.size_bytes)

    def wire_bytes(self, client: int) -> int:
        """Return the bytes on the wire, in both directions, of sending the file to a client."""
        return file_wire_size(self.announced.file_name(client), self.size_bytes)

    def write(self, path: Path) -> None:
        """Write the file atomically, unless it exists already.

        Raises:
            FedmxError: it cannot be written.
        """
        try:
            if not path.exists() or path.read_bytes() != self.content:
                path.parent.mkdir(exist_ok=True)
                write_durably(path, self._fill)
        except OSError as error:
            raise FedmxError(
                f"{path}: the asset cannot be written ({error.strerror}); make room"
            ) from None

    def _fill(self, path: Path) -> None:
        path.write_bytes(self.content)


def file_of_samples(
    name: str, raw: Raw, rows: npt.NDArray[np.int64], normalise: Normalise | None
) -> AssetFile:
    """Return the file of the given rows of a data set.

    Args:
        name: name of the asset.
        raw: the data set's split, as stored.
        rows: the rows to take.
        normalise: the normalisation of stored values; None: inputs are the stored values.
    """
    arrays = {
        "x": np.ascontiguousarray(raw.x[rows]),
        "y": np.ascontiguousarray(raw.y[rows]),
    }
    if normalise is not None:
        for setting in ("scale", "mean", "std"):
            arrays[setting] = np.array(getattr(normalise, setting), np.float64)
    return AssetFile(name, save(arrays))


def samples_in(asset: AssetFile) -> Samples:
    """Return the samples of a file, as inputs of the model.

    Raises:
        FedmxError: the file does not hold samples.
    """
    try:
        arrays = load(asset.content)
        raw = Raw(arrays.pop("x"), arrays.pop("y"))
        if raw.y.dtype != np.int64:
            raise DataError(f"labels are {raw.y.dtype}, not int64")
        settings: dict[str, Any] = {name: _plain(value) for name, value in arrays.items()}
        return materialise(raw, None, Normalise(**settings) if settings else None)
    except (SafetensorError, DataError, KeyError, TypeError, ValueError) as error:
        raise FedmxError(f"the asset {asset.name!r} holds no samples: {error}") from None


def _plain(value: np.ndarray) -> float | tuple[float, ...]:
    """Return a setting as a number, or as a tuple of numbers.

    Raises:
        DataError: the array is neither.
    """
    if value.dtype != np.float64 or value.ndim > 1:
        raise DataError(f"a setting is {value.dtype} of shape {value.shape}, not float64 numbers")
    return float(value) if value.ndim == 0 else tuple(value.tolist())
