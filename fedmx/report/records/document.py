"""The figures of runs as a JSON document, for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedmx.report.records.comparison import common_target
from fedmx.report.records.points import Point
from fedmx.report.records.summary import RunSummary, summarise
from fedmx.report.records.verdict import verdict
from fedmx.run import RunFolder


def document(runs: Sequence[RunFolder], target_accuracy: float | None = None) -> dict[str, Any]:
    """Return ``target`` and ``runs``: what is known of each run, with a point for each round.

    Shares are from 0 to 1, times in seconds, sizes in bytes; what was not measured is None.

    Args:
        runs: the runs.
        target_accuracy: see `fedmx.report.summary_text`.

    Raises:
        RunError: a run cannot be read.
    """
    summaries = [summarise(run) for run in runs]
    target = common_target(summaries, target_accuracy)
    found = zip(runs, summaries, strict=True)
    return {
        "target": target,
        "runs": [{"run": str(run.path), **_record(one, target)} for run, one in found],
    }


def _record(run: RunSummary, target: float | None) -> dict[str, Any]:
    final, best = run.final(), run.best()
    reached = None if target is None else run.reached(target)
    return {
        "state": run.status,
        "reason": run.reason,
        "verdict": verdict(run, target).words,
        "rounds": run.points[-1].round if run.points else 0,
        "planned_rounds": run.planned_rounds,
        "final_accuracy": final.accuracy if final else None,
        "final_loss": run.final_loss(),
        "best": _point(best),
        "target": _point(reached),
        "up_bytes": int(run.up_bytes),
        "down_bytes": int(run.down_bytes),
        "control_bytes": int(run.control_bytes),
        "file_bytes": int(run.file_bytes),
        "seconds": run.seconds,
        "settings": dict(run.settings),
        "damage": list(run.damage),
        "points": [asdict(point) for point in run.points],
    }


def _point(point: Point | None) -> dict[str, Any] | None:
    return None if point is None else asdict(point)
