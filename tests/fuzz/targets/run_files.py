"""Checkpoints, records and documents of a run: untrusted files."""

from __future__ import annotations

import atexit
import json
import os

from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedmx.run.checkpoint import METADATA_KEY, _digest, read_checkpoint
from fedmx.run.durable import CheckpointError, RunError, read_document
from fedmx.run.records import JsonLines
from tests.fuzz.target import Target, in_memory

FILE = in_memory() / f"fuzz-run-file-{os.getpid()}"


def read_both(data: bytes) -> None:
    """Read a checkpoint, also with the right digest."""
    sealed = _sealed(data)
    if sealed is not None:
        _write(sealed)
        with_digest = _read()
        if with_digest is not None:
            raise CheckpointError(with_digest)
    _write(data)
    reason = _read()
    if reason is not None:
        raise CheckpointError(reason)


def _read() -> str | None:
    try:
        read_checkpoint(FILE)
    except CheckpointError as error:
        return str(error)
    return None


def _write(data: bytes) -> None:
    with open(FILE, "wb") as file:
        file.write(data)


def _sealed(data: bytes) -> bytes | None:
    """Return the file with the digest of its content, None if it is no safetensors file."""
    try:
        arrays = load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
        _, _, content = metadata.get(METADATA_KEY, "").partition("\n")
        return save(arrays, {METADATA_KEY: f"{_digest(content, arrays)}\n{content}"})
    except (SafetensorError, ValueError, KeyError, TypeError):
        return None


@atexit.register
def _remove() -> None:
    FILE.unlink(missing_ok=True)


CHECKPOINT = Target("checkpoint", read_both, (CheckpointError,), opens=FILE)


def read_records(data: bytes) -> None:
    """Read all records of a file."""
    _write(data)
    records = JsonLines(FILE)
    for record in records.read():
        assert isinstance(record, dict)
    if records.damaged:
        raise RunError(f"damaged lines: {list(records.damaged)}")


def read_one_document(data: bytes) -> None:
    """Read a document such as run.json."""
    _write(data)
    assert isinstance(read_document(FILE).values, dict)


RECORDS = Target("records", read_records, (RunError,), opens=FILE)
DOCUMENT = Target("document", read_one_document, (RunError,), opens=FILE)
