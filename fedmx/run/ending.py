"""How a run ended, and why: the file status.json of its folder."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from fedmx.components.text import unknown
from fedmx.run.checksum import read_document, write_document
from fedmx.run.errors import DamagedError, RunError, cannot_write

Ending = Literal["done", "stopped", "interrupted", "failed"]
Status = Literal["running", "done", "stopped", "interrupted", "failed"]


def write_ending(path: Path, status: Ending, reason: str, files: Mapping[str, str]) -> None:
    """Write how a run ended.

    Args:
        path: the file.
        status: how it ended.
        reason: why, in any number of lines.
        files: the SHA-256 of files that were written at the end, by name.

    Raises:
        RunError: there is no such ending, or it cannot be written.
    """
    if status not in get_args(Ending):
        raise RunError(unknown("ending", status, get_args(Ending)))
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    ending = {"status": status, "reason": " ".join(reason.split()), "ended": now}
    try:
        write_document(path, {**ending, "files": dict(files)})
    except OSError as error:
        raise RunError(cannot_write(path.parent, error)) from None


def read_ending(path: Path, checked: bool) -> dict[str, Any]:
    """Return how a run ended, with an empty status if it has not.

    Args:
        path: the file.
        checked: whether it must have a checksum.

    Raises:
        DamagedError: the file is damaged.
    """
    if not path.exists():
        return {"status": ""}
    ending = read_document(path)
    if ending.values.get("status") not in get_args(Ending) or (checked and not ending.checked):
        raise DamagedError(f"{path}: damaged (it does not say how the run ended)")
    return ending.values
