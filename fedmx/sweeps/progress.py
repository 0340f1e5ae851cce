"""How far the runs of a sweep are, as their logs tell it, and how long they will take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmx.report.records.points import best_of
from fedmx.sweeps.cells import Cell, CellRun
from fedmx.sweeps.state import RunState, State


@dataclass
class RunProgress:
    """One run while the sweep works.

    Attributes:
        run: the cell and the seed.
        planned: its number of rounds.
        state: see `RunState`.
        rounds: how many it has run.
        best: the highest accuracy, None: not evaluated yet.
        seconds: that the rounds of this process took.
        timed: how many rounds these were.
        reason: why it failed.
        left_out: whether it is not begun, since another seed of the cell failed at once.
        process_s: how long its process took, once that has ended.
    """

    run: CellRun
    planned: int
    state: State
    rounds: int = 0
    best: float | None = None
    seconds: float = 0.0
    timed: int = 0
    reason: str = ""
    left_out: bool = False
    process_s: float | None = None

    @classmethod
    def of(cls, state: RunState, planned: int) -> RunProgress:
        """Return what is known of a run before it is started or resumed."""
        best = best_of(state.points)
        return cls(
            state.run,
            planned,
            state.state,
            state.rounds,
            best.accuracy if best else None,
            reason=state.reason,
        )

    @property
    def left(self) -> int:
        """How many rounds are left, at most."""
        ended = self.state in ("done", "failed")
        return 0 if ended or self.left_out else max(self.planned - self.rounds, 0)

    def add_round(self, record: Mapping[str, Any]) -> None:
        """Add a round that was told in the log."""
        self.rounds = int(record.get("round", self.rounds))
        accuracy, seconds = record.get("accuracy"), record.get("seconds")
        if isinstance(accuracy, float):
            self.best = max(accuracy, self.best or 0.0)
        if isinstance(seconds, float):
            self.seconds += seconds
            self.timed += 1


@dataclass
class SweepProgress:
    """All runs of a sweep while it works.

    Attributes:
        runs: in the order in which they are begun.
        at_once: how many run side by side.
        may_end_early: whether a target may end one of them before its last round.
    """

    runs: Sequence[RunProgress]
    at_once: int
    may_end_early: bool = False

    def of(self, cell: Cell) -> list[RunProgress]:
        """Return the runs of a cell."""
        return [one for one in self.runs if one.run.cell.number == cell.number]

    def left_s(self) -> float | None:
        """Return how many seconds all runs will take, at most; None: not known yet."""
        total = longest = 0.0
        for one in self.runs:
            if one.left:
                each_s = self._round_s(one.run.cell)
                if each_s is None:
                    return None
                took_s = one.left * each_s + (self._start_s() if one.state == "waiting" else 0.0)
                total += took_s
                longest = max(longest, took_s)
        return max(longest, total / self.at_once)

    def _round_s(self, cell: Cell) -> float | None:
        """Return the mean time of a round of a cell, or else of all cells."""
        for chosen in (self.of(cell), self.runs):
            timed = sum(one.timed for one in chosen)
            if timed:
                return sum(one.seconds for one in chosen) / timed
        return None

    def _start_s(self) -> float:
        """Return how long a process takes besides its rounds, by the mean of those that ended."""
        others = [one.process_s - one.seconds for one in self.runs if one.process_s is not None]
        return sum(others) / len(others) if others else 0.0


@dataclass
class LogReader:
    """Reads what a run adds to its log.

    Attributes:
        path: the log.
        offset: where the next line begins.
    """

    path: Path
    offset: int = field(default=0)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the rounds of the lines that were added since the last call."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            lines = file.read().split(b"\n")
        self.offset += sum(len(line) + 1 for line in lines[:-1])
        found = []
        for line in lines[:-1]:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # what a library wrote
            if isinstance(event, dict) and event.get("event") == "round":
                found.append(event["fields"])
        return found
