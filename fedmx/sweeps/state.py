"""The state of each run of a sweep, from its folder and its log."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedmx.report.records.points import Point, best_of, evaluated, first_with, points_of
from fedmx.run import RunError, RunFolder
from fedmx.sweeps.cells import CellRun
from fedmx.sweeps.folder import SweepFolder

State = Literal["waiting", "running", "interrupted", "failed", "done"]
INTERRUPTED = 130
"""The exit code of a command that a signal ended in good order."""

_TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class RunState:
    """What is known of one run.

    Attributes:
        run: the cell and the seed.
        state: *waiting* has not begun, *interrupted* and *failed* can go on.
        reason: why it failed, or how it ended.
        folder: the run folder, None: not there yet.
        points: of the rounds so far those in which the accuracy was higher than ever before, and
            the last ones; a sweep of many runs need not hold all.
    """

    run: CellRun
    state: State
    reason: str = ""
    folder: Path | None = None
    points: Sequence[Point] = ()

    @property
    def rounds(self) -> int:
        """How many rounds it has run."""
        return self.points[-1].round if self.points else 0

    @property
    def failed_at_once(self) -> bool:
        """Whether it failed before it had a run folder; so would the cell's other seeds."""
        return self.state == "failed" and self.folder is None

    def row(self, target: float | None) -> dict[str, Any]:
        """Return the row of the table; what was not measured or not reached is None.

        Args:
            target: the accuracy (0 to 1) to which rounds and bytes are counted; None: there is
                none.
        """
        measured = evaluated(self.points)
        best, reached = best_of(self.points), None
        if target is not None:
            reached = first_with(self.points, target)
        return {
            **self.run.cell.settings,
            "seed": self.run.seed,
            "state": self.state,
            "rounds_run": self.rounds,  # "rounds" may be a setting that varies
            "best_accuracy": best.accuracy if best else None,
            "best_round": best.round if best else None,
            "final_accuracy": measured[-1].accuracy if measured else None,
            "target": target,
            "rounds_to_target": reached.round if reached else None,
            "bytes_to_target": int(reached.bytes) if reached else None,
            "bytes": int(self.points[-1].bytes) if self.points else None,
            "seconds": round(self.points[-1].seconds, 3) if self.points else None,
            "run": self.folder.name if self.folder else None,
            "reason": self.reason,
        }


def state_of(sweep: SweepFolder, run: CellRun) -> RunState:
    """Return the state of a run; a damaged run folder has failed."""
    path = sweep.run_path(run)
    failure = failure_in(sweep.log_path(run))
    if path is None:
        return RunState(run, "waiting") if failure is None else RunState(run, "failed", failure)
    try:
        folder = RunFolder.open(path)
        points = _telling(points_of(folder.rounds()))
        status = folder.status
    except RunError as error:
        return RunState(run, "failed", str(error), path)
    if status == "done":
        return RunState(run, "done", folder.reason, path, points)
    if folder.process is not None:
        return RunState(run, "running", "", path, points)
    if failure is not None:
        return RunState(run, "failed", failure, path, points)
    return RunState(run, "interrupted", folder.reason, path, points)


def _telling(points: Sequence[Point]) -> list[Point]:
    """Return the points that a table needs, whatever the target is."""
    kept, highest = {}, -1.0
    for one in evaluated(points):
        if (one.accuracy or 0.0) > highest:
            highest = one.accuracy or 0.0
            kept[one.round] = one
    for one in (*evaluated(points)[-1:], *points[-1:]):
        kept[one.round] = one
    return [kept[round] for round in sorted(kept)]


def failure_in(log: Path) -> str | None:
    """Return the error in the last line of a run's log; None: it did not end with one."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
        last = json.loads(lines[-1]) if lines else {}
    except FileNotFoundError:
        return None
    except ValueError:
        return None  # a line that a killed process did not finish
    if not isinstance(last, dict) or last.get("event") != "error":
        return None
    code = last.get("fields", {}).get("code")
    return None if code == INTERRUPTED else str(last.get("text", ""))
