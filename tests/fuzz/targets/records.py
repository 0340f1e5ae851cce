"""The records and documents of a run: untrusted files."""

from __future__ import annotations

import atexit
import os

from fedmx.run.durable import RunError, read_document
from fedmx.run.records import JsonLines
from tests.fuzz.target import Target, in_memory

FILE = in_memory() / f"fuzz-records-{os.getpid()}"


def read_records(data: bytes) -> None:
    """Read all records of a file."""
    _write(data)
    records = JsonLines(FILE)
    for record in records.read():
        assert isinstance(record, dict)
    if records.damaged:
        raise RunError(f"damaged lines: {records.damaged}")


def read_one_document(data: bytes) -> None:
    """Read a document such as run.json."""
    _write(data)
    assert isinstance(read_document(FILE).values, dict)


def _write(data: bytes) -> None:
    with open(FILE, "wb") as file:
        file.write(data)


@atexit.register
def _remove() -> None:
    FILE.unlink(missing_ok=True)


RECORDS = Target("records", read_records, (RunError,), opens=FILE)
DOCUMENT = Target("document", read_one_document, (RunError,), opens=FILE)
