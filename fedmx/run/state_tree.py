"""The encoding of a state tree as a JSON text and a table of arrays, without any loss.

JSON alone turns integer keys into text, loses infinities, and has no bytes and no arrays. So a
value that JSON holds exactly is written as it is, and every other value is an object with one tag:

===========  ========================================================================
``dict``     list of ``[key, node]``, in order; a key is text or an integer
``tuple``    list of nodes (a plain JSON list is a list)
``array``    name in the table of arrays
``scalar``   the same, for a numpy scalar (kept as an array without dimensions)
``bytes``    the same, for bytes (kept as an array of uint8)
``int``      hexadecimal text, for an integer that does not fit 64 bits
``float``    ``inf``, ``-inf`` or ``nan``
===========  ========================================================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = frozenset(
    f"{kind}{size}"
    for kind, sizes in (("f", "248"), ("iu", "1248"))
    for kind in kind
    for size in sizes
) | {"b1"}


def encode(tree: Mapping[Any, Any]) -> tuple[str, dict[str, NDArray[Any]]]:
    """Return the JSON text of a state tree, and the arrays that it names.

    Contiguous arrays are not copied. Arrays that are the same memory are in the table once.

    Args:
        tree: a nested mapping with str or int keys. Its leaves are numpy arrays and scalars
            (floats, integers and booleans), bytes, int, float, str, bool, None, and lists and
            tuples of these.

    Raises:
        TypeError: a leaf or a key has another type; the text has its path.
    """
    arrays = _Arrays()
    node = _encode(tree, "state", arrays)
    return json.dumps(node, allow_nan=False, separators=(",", ":")), arrays.named


def decode(text: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the tree that `encode` was given.

    Raises:
        ValueError: the text is not from `encode`.
    """
    try:
        return _decode(json.loads(text), arrays)
    except RecursionError:
        raise ValueError("a state tree that is nested too deeply") from None


def _encode(value: Any, path: str, arrays: _Arrays) -> Any:
    if isinstance(value, np.generic):  # first, because np.float64 is a float, too
        return {"scalar": _store(np.asarray(value), path, arrays)}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if -(2**63) <= number < 2**63 else {"int": hex(number)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, np.ndarray):
        return {"array": _store(value, path, arrays)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": _store(np.frombuffer(value, dtype=np.uint8), path, arrays)}
    if isinstance(value, list):
        return [_encode(item, f"{path}[{i}]", arrays) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, f"{path}[{i}]", arrays) for i, item in enumerate(value)]}
    if isinstance(value, Mapping):
        return {
            "dict": [
                [_key(key, path), _encode(item, f"{path}.{key}", arrays)]
                for key, item in value.items()
            ]
        }
    raise TypeError(f"{path}: {type(value).__name__} cannot be kept in a checkpoint")


def _key(key: Any, path: str) -> str | int:
    if isinstance(key, str):
        return _text(key, path)
    if isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key < 2**63:
        return int(key)
    raise TypeError(f"{path}: key {key!r} is neither text nor an integer of 64 bits")


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TypeError(f"{path}: the text {value!r} is not valid Unicode") from None
    return str(value)


class _Arrays:
    """The table of arrays; the same memory has one name."""

    def __init__(self) -> None:
        self.named: dict[str, NDArray[Any]] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def name_of(self, array: NDArray[Any]) -> str:
        """Return the name of an array; the array must live as long as the table."""
        where = (array.__array_interface__["data"][0], array.dtype, array.shape, array.strides)
        name = self._names.setdefault(where, str(len(self.named)))
        # order="C" keeps an array of 0 dimensions as it is; ascontiguousarray would add one.
        plain = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
        self.named.setdefault(name, plain)
        return name


def _store(array: NDArray[Any], path: str, arrays: _Arrays) -> str:
    if array.dtype.str[1:] not in DTYPES:
        raise TypeError(f"{path}: an array of dtype {array.dtype} cannot be kept in a checkpoint")
    return arrays.name_of(array)


def _decode(node: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    match node:
        case None | bool() | int() | float() | str():
            return node
        case list():
            return [_decode(item, arrays) for item in node]
        case {"dict": list(items), **rest} if not rest:
            return dict(_pair(pair, arrays) for pair in items)
        case {"tuple": list(items), **rest} if not rest:
            return tuple(_decode(item, arrays) for item in items)
        case {"array": str(name), **rest} if not rest and name in arrays:
            return arrays[name]
        case {"scalar": str(name), **rest} if not rest and name in arrays:
            return arrays[name][()]
        case {"bytes": str(name), **rest} if not rest and name in arrays:
            return arrays[name].tobytes()
        case {"int": str(digits), **rest} if not rest:
            return int(digits, 16)
        case {"float": ("inf" | "-inf" | "nan") as name, **rest} if not rest:
            return float(name)
    raise ValueError(f"not a node of a state tree: {str(node)[:60]}")


def _pair(pair: Any, arrays: Mapping[str, NDArray[Any]]) -> tuple[str | int, Any]:
    match pair:
        case [str() | int() as key, node]:
            return key, _decode(node, arrays)
    raise ValueError(f"not an entry of a state tree: {str(pair)[:60]}")
