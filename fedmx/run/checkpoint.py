"""One checkpoint: a state tree in one safetensors file that knows its own SHA-256.

The arrays are the file's tensors; its metadata has one entry: the digest, a line break, and a JSON
text with the format, the round and the rest of the tree (see `state_tree`). The digest covers that
text and the name, dtype, shape and bytes of every array, so that a file that was cut, mixed up or
flipped in one bit is found out when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedmx.run.durable import write_durably
from fedmx.run.errors import CheckpointError
from fedmx.run.state_tree import decode, encode

FORMAT = 1
METADATA_KEY = "fedmx-checkpoint"


class Checkpoint(NamedTuple):
    """What a run resumes from.

    ``round`` is the last round that ``state`` contains; ``warnings`` has one line for every newer
    checkpoint that was passed over because it is damaged.
    """

    round: int
    state: Any
    warnings: tuple[str, ...] = ()


def write_checkpoint(path: Path, round_number: int, state: Mapping[Any, Any]) -> None:
    """Write ``state`` to ``path``, whole or not at all. Raises CheckpointError."""
    try:
        tree, arrays = encode(state)
    except TypeError as error:
        raise CheckpointError(f"round {round_number}: {error}") from None
    content = json.dumps(
        {"format": FORMAT, "round": round_number, "tree": tree}, separators=(",", ":")
    )
    metadata = {METADATA_KEY: f"{_digest(content, arrays)}\n{content}"}
    try:
        write_durably(path, lambda temporary: save_file(arrays, temporary, metadata=metadata))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot write the checkpoint ({error}); the one before it is untouched: "
            "make room, then resume the run"
        ) from None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the checkpoint at ``path``. Raises CheckpointError when it is not what was written."""
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
    # From here on the file is what some fedmx wrote.
    document = json.loads(content)
    if document["format"] > FORMAT:
        raise CheckpointError(
            f"{path}: the checkpoint has format {document['format']}, this fedmx reads up to "
            f"{FORMAT}; use the version that wrote it, or a newer one"
        )
    return Checkpoint(document["round"], decode(document["tree"], arrays))


def _digest(content: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
