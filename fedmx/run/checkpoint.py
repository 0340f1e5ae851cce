"""Safetensors files of a run: checkpoints, each with its own SHA-256, and the final weights.

In a checkpoint, the arrays of the state tree are the file's tensors. The metadata has one entry:
the digest, a line break, and a JSON text with the format, the round and the rest of the tree. The
digest covers that text and the name, dtype, shape and bytes of every array. Reading detects any
damage, even one flipped bit.

JSON alone turns integer keys into text, loses infinities, and has no bytes and no arrays. A value
that JSON holds exactly is written as it is; every other value is an object with one tag:

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

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedmx.run.durable import CheckpointError, RunError, advice_on, write_durably

FORMAT = 1
METADATA_KEY = "fedmx-checkpoint"


class Checkpoint(NamedTuple):
    """A checkpoint that was read.

    Attributes:
        round: the last round that the state contains.
        state: the state tree.
        warnings: one line for each newer checkpoint that is damaged and was skipped.
    """

    round: int
    state: Any
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """Which checkpoints are kept.

    Attributes:
        last: the number of newest checkpoints.
        every: also keep every n-th round, where a replay can start; None: no others.

    Raises:
        CheckpointError: one of them is below 1.
    """

    last: int = 5
    every: int | None = None

    def __post_init__(self) -> None:
        if self.last < 1 or (self.every is not None and self.every < 1):
            raise CheckpointError(f"checkpoints to keep must be 1 or more, not {self}")

    def is_due(self, round: int, every: int) -> bool:
        """Return whether a round gets a checkpoint, if every `every` rounds get one."""
        return round % every == 0 or (self.every is not None and round % self.every == 0)

    def superfluous(self, rounds: Sequence[int]) -> list[int]:
        """Return the rounds whose checkpoints may go; `rounds` has the newest first."""
        return [one for one in rounds[self.last :] if self.every is None or one % self.every]


def write_checkpoint(path: Path, round_number: int, state: Mapping[Any, Any]) -> None:
    """Write a checkpoint atomically.

    Args:
        path: the file.
        round_number: the last round that the state contains.
        state: a state tree; see `fedmx.run.checkpoint.encode`.

    Raises:
        CheckpointError: the state holds something else, or the file cannot be written.
    """
    try:
        tree, arrays = encode_tree(state)
    except TypeError as error:
        raise CheckpointError(f"round {round_number}: {error}") from None
    content = json.dumps(
        {"format": FORMAT, "round": round_number, "tree": tree}, separators=(",", ":")
    )
    metadata = {METADATA_KEY: f"{_digest(content, arrays)}\n{content}"}
    try:
        write_durably(
            path, lambda temporary: save_file(arrays, temporary, metadata=metadata), private=True
        )
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot write the checkpoint ({_reason(error)}); the previous one is unchanged"
            f"{_advice_on(error)}; resume the run"
        ) from None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: the file is damaged, or a newer fedmx wrote it.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            arrays = {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path}: the checkpoint is damaged ({error})") from None
    recorded, _, content = metadata.get(METADATA_KEY, "").partition("\n")
    if recorded != _digest(content, arrays):
        raise CheckpointError(f"{path}: the checkpoint is damaged (its SHA-256 does not match)")
    # The digest is right, so fedmx wrote the file, or somebody who can compute a digest.
    try:
        match json.loads(content):
            case {"format": int(found)} if found > FORMAT:
                raise CheckpointError(
                    f"{path}: the checkpoint has format {found}, this fedmx reads up to "
                    f"{FORMAT}; use the version that wrote it, or a newer one"
                )
            case {"format": int(), "round": int(round_number), "tree": str(tree)}:
                return Checkpoint(round_number, decode_tree(tree, arrays))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the checkpoint cannot be read ({error})") from None
    raise CheckpointError(f"{path}: not a checkpoint of fedmx; give another file")


def keeps(path: Path, *keys: str | int) -> bool:
    """Return whether the state in a checkpoint has a value under these keys.

    Its arrays are not read, so that this is quick, and its digest is not checked.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            _, _, content = (file.metadata() or {})[METADATA_KEY].partition("\n")
        node = json.loads(json.loads(content)["tree"])
        for key in keys:
            node = dict(node["dict"])[key]
    except (OSError, SafetensorError, ValueError, LookupError, TypeError, RecursionError):
        return False
    return True


def checkpoints_in(folder: Path) -> list[tuple[int, Path]]:
    """Return the round and the path of each checkpoint, the newest first."""
    found = [
        (int(match[1]), path)
        for path in folder.glob("round-*.safetensors")
        if (match := re.fullmatch(r"round-([0-9]+)\.safetensors", path.name))
    ]
    return sorted(found, reverse=True)


def _digest(content: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


DTYPES = frozenset(
    f"{kind}{size}"
    for kind, sizes in (("f", "248"), ("iu", "1248"))
    for kind in kind
    for size in sizes
) | {"b1"}


def encode_tree(tree: Mapping[Any, Any]) -> tuple[str, dict[str, NDArray[Any]]]:
    """Return the JSON text of a state tree, and the arrays that it names.

    Contiguous arrays are not copied. Arrays that share memory are in the table once.

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


def decode_tree(text: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return the tree that was given to `encode_tree`.

    Raises:
        ValueError: the text is not from `encode_tree`.
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
    """The table of arrays; arrays that share memory have one name."""

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


Layout = Sequence[tuple[str, tuple[int, ...]]]


def export_weights(path: str | Path, layout: Layout, vector: NDArray[Any]) -> None:
    """Write a flat vector as named tensors, atomically; the same vector gives the same bytes.

    Args:
        path: the file.
        layout: the name and shape of each tensor, in the order of the vector.
        vector: (d,), all tensors in order.

    Raises:
        RunError: the layout does not fit the vector, or the file cannot be written.
    """
    names = [name for name, _ in layout]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RunError(f"{path}: the layout names the parameter {twice!r} twice")
    expected = sum(math.prod(shape) for _, shape in layout)
    if vector.shape != (expected,):
        raise RunError(
            f"{path}: the layout has {expected} numbers, the vector has shape {vector.shape}"
        )
    flat = np.ascontiguousarray(vector)
    tensors: dict[str, NDArray[Any]] = {}
    start = 0
    for name, shape in layout:
        stop = start + math.prod(shape)
        tensors[name] = flat[start:stop].reshape(shape)
        start = stop
    try:
        write_durably(Path(path), lambda temporary: save_file(tensors, temporary))
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"{path}: cannot write the model ({_reason(error)}){_advice_on(error)}"
        ) from None


def _reason(error: OSError | SafetensorError) -> str:
    """Return what happened, without the name of the temporary file."""
    return str(error.strerror if isinstance(error, OSError) else error)


def _advice_on(error: OSError | SafetensorError) -> str:
    """Return what to do about a write error, as `advice_on` does.

    An error of safetensors has no number; writing is all that can fail in it.
    """
    return advice_on(error) if isinstance(error, OSError) else "; check the free disk space"
