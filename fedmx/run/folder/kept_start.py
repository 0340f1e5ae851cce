"""The weights that a run began from, as its folder keeps them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedmx.run.errors import RunError
from fedmx.run.folder.run_folder import RunFolder


def kept_start(folder: RunFolder) -> Path | None:
    """Return the file in a run folder with the weights of before round 1, after a check.

    Returns:
        The file; None if the run began from its seed.

    Raises:
        RunError: the file is gone, or is not the one that the run began from.
    """
    facts = folder.facts.get("start")
    if not isinstance(facts, dict):
        return None
    path = folder.start_path
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RunError(
            f"{path}: cannot read it ({error.strerror}); restore it, or start a new run"
        ) from None
    if digest != facts.get("kept_sha256"):
        raise RunError(
            f"{path}: these are not the weights that the run began from; "
            "restore the file, or start a new run"
        )
    return path
