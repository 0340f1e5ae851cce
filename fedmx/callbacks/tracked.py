"""What a run tells a tracker of experiments: its name, its settings and its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmx.callbacks.keep_best import BEST
from fedmx.report.summary import as_text, read_settings
from fedmx.server.callback import Running


def name_of(run: Running) -> str:
    """Return the run folder's name, or else the experiment's."""
    if run.folder is not None:
        return run.folder.name
    return "fedmx" if run.experiment is None else run.experiment.name


def settings_of(run: Running) -> dict[str, str]:
    """Return the experiment's settings as text, each under its dotted path."""
    if run.experiment is None:
        return {}
    settings = read_settings(run.experiment.to_yaml())
    return {key: as_text(value) for key, value in settings.items()}


def numbers_in(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a round's record, its own number left out."""
    return {
        key: float(value)
        for key, value in record.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and key != "round"
        and math.isfinite(value)
    }


def files_of(run: Running) -> list[Path]:
    """Return the files of the run folder that a tracker may keep."""
    if run.folder is None:
        return []
    best = run.folder.path / BEST
    files = (run.folder.path / "experiment.yaml", run.folder.model_path, run.folder.report_path)
    return [path for path in (*files, best) if path.exists()]
