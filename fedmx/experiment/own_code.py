"""The code of users that an experiment file names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedmx.components.user_code import NamedCode, owner_of
from fedmx.components.user_code import named_code as named_by
from fedmx.experiment.model import Experiment

__all__ = ["NamedCode", "named_code", "owner_of"]


def named_code(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), folder: Path | None = None
) -> list[NamedCode]:
    """Return the code that an experiment file names and that is not fedmx's."""
    return named_by(Experiment.read(path, overrides, folder=folder).components)
