"""Training samples as an asset's file, written and read.

The file is in the safetensors format. It holds `x` (n, ...) as the data set stores it, labels `y`
(n,) in int64, and, where stored values are normalised, float64 `scale`, `mean` and `std` (one
number, or one per channel). So a client can make the model's inputs from it, whatever its own data
are, and pixels are sent as bytes. The same samples give the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedmx.assembly.asset_file import AssetFile
from fedmx.errors import FedmxError
from layers.compute.data.datasets import Raw
from layers.compute.data.errors import DataError
from layers.compute.data.normalise import Normalise, materialise
from layers.compute.data.samples import Samples


def file_of_samples(
    name: str, raw: Raw, rows: npt.NDArray[np.int64], normalise: Normalise | None
) -> AssetFile:
    """Return the file of the given rows of a data set.

    Args:
        name: name of the asset.
        raw: the data set's split, as stored.
        rows: the rows to take.
        normalise: how stored values become inputs; None: unchanged.
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
    """Return the samples of a file, as the model takes them.

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
    """Return one number, or several as a tuple, as in the settings of an experiment.

    Raises:
        DataError: the array is neither.
    """
    if value.dtype != np.float64 or value.ndim > 1:
        raise DataError(f"a setting is {value.dtype} of shape {value.shape}, not float64 numbers")
    return float(value) if value.ndim == 0 else tuple(value.tolist())
