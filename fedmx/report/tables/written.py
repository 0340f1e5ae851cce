"""Writes a text that a user asked for, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.run.durable import write_text_durably


def write_output(path: Path, text: str, what: str, endings: Sequence[str]) -> None:
    """Write a file that replaces none that fedmx did not write.

    Raises:
        FedmxError: see `check_output`, or the disk refuses.
    """
    check_output(path, what, endings)
    try:
        write_text_durably(path, text)
    except OSError as error:
        raise FedmxError(f"{path}: cannot write it ({error.strerror})") from None
