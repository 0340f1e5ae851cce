"""Reading ``.npz`` files: whole, without pickled objects, or refused with the file's name."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import DataError

# What numpy and zipfile raise, between them, on a file that is not what it says.
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
    """Read all arrays of the file at ``path``; raises DataError with its name.

    ``check`` is called with the arrays' names before any is read.
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
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason})") from error


def take(
    arrays: Mapping[str, npt.NDArray[Any]],
    name: str,
    kinds: str,
    shape: tuple[int | None, ...],
    where: str,
) -> npt.NDArray[Any]:
    """Give the array ``name``, whose dtype's kind is among ``kinds``; None in ``shape`` is any.

    Raises DataError that names ``where`` and what is wrong.
    """
    if name not in arrays:
        raise DataError(f"{where}: lacks {name}; it has {', '.join(arrays) or 'nothing'}")
    array = arrays[name]
    if array.dtype.kind not in kinds:
        raise DataError(f"{where}: {name} has the dtype {array.dtype}, which it cannot have")
    fits = len(array.shape) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("n" if size is None else str(size) for size in shape)
        raise DataError(f"{where}: {name} has shape {array.shape}, not ({wanted})")
    return array
