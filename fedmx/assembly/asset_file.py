"""Samples that every client is given, as the file in which they travel."""

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
from fedmx.run.durable import write_durably
from layers.compute.data.datasets import Raw
from layers.compute.data.datasets.normalise import Normalise, materialise
from layers.compute.data.errors import DataError
from layers.compute.data.samples import Samples
from layers.network import file_wire_size


@dataclass(frozen=True)
class AssetFile:
    """A file in the safetensors format; the same samples give the same bytes.

    It holds `x` (n, ...) as the data set stores it, labels `y` (n,) in int64, and, where stored
    values are normalised, float64 `scale`, `mean` and `std` (one number, or one per channel). So a
    client makes the model's inputs of it whatever its own data are, and pixels travel as bytes.

    Attributes:
        content: of the file.
    """

    content: bytes

    @classmethod
    def of(cls, raw: Raw, rows: npt.NDArray[np.int64], normalise: Normalise | None) -> AssetFile:
        """Make the file of some rows of a data set."""
        arrays = {
            "x": np.ascontiguousarray(raw.x[rows]),
            "y": np.ascontiguousarray(raw.y[rows]),
        }
        if normalise is not None:
            for name in ("scale", "mean", "std"):
                arrays[name] = np.array(getattr(normalise, name), np.float64)
        return cls(save(arrays))

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return len(self.content)

    def wire_bytes(self, client: int) -> int:
        """Bytes that handing it to a client takes on the wire, both directions together."""
        return file_wire_size(file_name(self.sha256, client), self.size_bytes)

    @cached_property
    def samples(self) -> Samples:
        """The samples, as the model takes them.

        Raises:
            FedmxError: the file is none of shared samples.
        """
        try:
            arrays = load(self.content)
            raw = Raw(arrays.pop("x"), arrays.pop("y"))
            if raw.y.dtype != np.int64:
                raise DataError(f"labels are {raw.y.dtype}, not int64")
            settings: dict[str, Any] = {name: _plain(value) for name, value in arrays.items()}
            return materialise(raw, None, Normalise(**settings) if settings else None)
        except (SafetensorError, DataError, KeyError, TypeError, ValueError) as error:
            raise FedmxError(f"the shared samples cannot be read: {error}") from None

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all, unless it is there already.

        Raises:
            FedmxError: it cannot be written.
        """
        try:
            if not path.exists() or path.read_bytes() != self.content:
                write_durably(path, self._fill)
        except OSError as error:
            raise FedmxError(
                f"{path}: the shared samples cannot be written ({error.strerror}); make room"
            ) from None

    def _fill(self, path: Path) -> None:
        path.write_bytes(self.content)


def file_name(sha256: str, client: int) -> str:
    """Return the name of a client's copy: clients of one machine may have one folder."""
    return f"shared-{sha256[:16]}-client-{client}.safetensors"


def _plain(value: np.ndarray) -> float | tuple[float, ...]:
    """Return a number or some, as the settings of an experiment have them."""
    if value.dtype != np.float64 or value.ndim > 1:
        raise DataError(f"a setting is {value.dtype} of shape {value.shape}, not float64 numbers")
    return float(value) if value.ndim == 0 else tuple(value.tolist())
