"""A checkpoint: a state tree in one safetensors file with its own SHA-256.

The arrays are the file's tensors. The metadata has one entry: the digest, a line break, and a JSON
text with the format, the round and the rest of the tree (see `state_tree`). The digest covers that
text and the name, dtype, shape and bytes of every array. So a damaged file, even with one flipped
bit, is detected when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedmx.run.durable import write_durably
from fedmx.run.errors import CheckpointError, is_full
from fedmx.run.state_tree import decode, encode

FORMAT = 1
METADATA_KEY = "fedmx-checkpoint"


class Checkpoint(NamedTuple):
    """A checkpoint that was read.

    Attributes:
        round: the last round that the state contains.
        state: the state tree.
        warnings: one line for each newer checkpoint that was skipped because it is damaged.
    """

    round: int
    state: Any
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """Which checkpoints are kept.

    Attributes:
        last: how many of the newest.
        every: besides them those of every so many rounds, from which a replay can begin; None: no
            others.

    Raises:
        CheckpointError: one of them is below 1.
    """

    last: int = 5
    every: int | None = None

    def __post_init__(self) -> None:
        if self.last < 1 or (self.every is not None and self.every < 1):
            raise CheckpointError(f"checkpoints to keep must be 1 or more, not {self}")

    def is_due(self, round: int, every: int) -> bool:
        """Return whether a round gets a checkpoint, if every so many rounds get one."""
        return round % every == 0 or (self.every is not None and round % self.every == 0)

    def superfluous(self, rounds: Sequence[int]) -> list[int]:
        """Return which checkpoints need not be kept, of those of these rounds, the newest first."""
        return [one for one in rounds[self.last :] if self.every is None or one % self.every]


def write_checkpoint(path: Path, round_number: int, state: Mapping[Any, Any]) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        path: the file.
        round_number: the last round that the state contains.
        state: a state tree; see `fedmx.run.state_tree.encode`.

    Raises:
        CheckpointError: the state holds something else, or the file cannot be written.
    """
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
            f"{path}: cannot write the checkpoint ({error}); the one before it is unchanged; "
            f"{'free disk space, then ' if is_full(error) else ''}resume the run"
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
    # The digest is right: some version of fedmx wrote the file, or somebody who can make a digest.
    try:
        match json.loads(content):
            case {"format": int(found)} if found > FORMAT:
                raise CheckpointError(
                    f"{path}: the checkpoint has format {found}, this fedmx reads up to "
                    f"{FORMAT}; use the version that wrote it, or a newer one"
                )
            case {"format": int(), "round": int(round_number), "tree": str(tree)}:
                return Checkpoint(round_number, decode(tree, arrays))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the checkpoint cannot be read ({error})") from None
    raise CheckpointError(f"{path}: no checkpoint of fedmx; give another file")


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
