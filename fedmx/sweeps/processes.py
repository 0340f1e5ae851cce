"""The runs of a sweep as processes of ``fedmx run``, and how far they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmx.report.summary import best_of
from fedmx.sweeps.cells import Cell, CellRun
from fedmx.sweeps.folder import INTERRUPTED, RunState, State, SweepFolder, failure_in, state_of


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


TICK_S = 0.1
Show = Callable[[SweepProgress, "RunProgress | None"], None]
"""Is called at each tick; with a run, when that has ended."""


@dataclass(frozen=True)
class Options:
    """What all runs of a sweep are started with.

    Attributes:
        at_once: how many run side by side.
        modules: whose code the experiment may name, as after ``--module``.
        executor: in place of the experiment's, as after ``--executor``.
    """

    at_once: int
    modules: Sequence[str] = ()
    executor: str | None = None

    @property
    def words(self) -> list[str]:
        """The options of each command."""
        words = [word for one in self.modules for word in ("--module", one)]
        return [*words, *(() if self.executor is None else ("--executor", self.executor))]


@dataclass(frozen=True)
class _Started:
    progress: RunProgress
    process: subprocess.Popen[bytes]
    log: LogReader
    began_s: float


def run_all(folder: SweepFolder, progress: SweepProgress, options: Options, show: Show) -> None:
    """Run what is not done yet; hold the folder's lock meanwhile.

    A run that fails does not end the others. One that another process still works on, which is the
    case for a moment after a sweep was killed, is waited for.

    Args:
        folder: of the sweep.
        progress: of its runs; it is kept up to date.
        options: of the processes.
        show: see `Show`.

    Raises:
        KeyboardInterrupt: all processes have ended, in good order.
    """
    left = [one for one in progress.runs if one.state != "done"]
    for one in left:
        one.state, one.reason, one.left_out = "waiting", "", False
    started: list[_Started] = []
    try:
        while left or started:
            while len(started) < options.at_once and (begun := _next(folder, left)) is not None:
                started.append(_start(folder, begun, options))
            time.sleep(TICK_S)
            for each in list(started):
                code = each.process.poll()
                for record in each.log.rounds():
                    each.progress.add_round(record)
                if code is not None:
                    started.remove(each)
                    if _end(folder, each, code).failed_at_once:
                        _leave_out(each.progress.run.cell, left)
                    show(progress, each.progress)
            show(progress, None)
    except BaseException:
        _stop(started)
        raise


def _next(folder: SweepFolder, left: list[RunProgress]) -> RunProgress | None:
    """Take the first run from `left` that can be started: no other process works on it."""
    for one in list(left):
        state = state_of(folder, one.run)
        if state.state != "running":
            left.remove(one)
        if state.state == "done":  # that other process was faster
            one.state, one.rounds, one.reason = state.state, state.rounds, state.reason
        elif state.state != "running":
            return one
    return None


def _start(folder: SweepFolder, progress: RunProgress, options: Options) -> _Started:
    progress.state = "running"
    path = folder.log_path(progress.run)
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as log:
        reader = LogReader(path, log.tell())
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fedmx.cli.of_parent", str(os.getpid())),
                *command(folder, progress.run),
                *("--log-format", "json"),
                *options.words,
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    return _Started(progress, process, reader, time.monotonic())


def command(folder: SweepFolder, run: CellRun) -> list[str]:
    """Return the words after ``fedmx`` that begin a run, or go on with it."""
    path = folder.run_path(run)
    if path is not None:
        return ["resume", str(path)]
    where = [f"name={json.dumps(run.name)}", f"run.folder={json.dumps(str(folder.path))}"]
    overrides = [*folder.manifest.overrides, *run.overrides, *where]
    words = [word for one in overrides for word in ("--set", one)]
    return ["run", str(folder.experiment_path), *words, "--beside", folder.manifest.modules]


def _end(folder: SweepFolder, each: _Started, code: int) -> RunState:
    """Return the state of a run whose process has ended, and keep it in its progress.

    A process without last words gets them in its log.
    """
    log = folder.log_path(each.progress.run)
    if code not in (0, INTERRUPTED) and failure_in(log) is None:
        text = f"its process ended with code {code}"
        if code < 0:
            text = f"its process was ended by {signal.Signals(-code).name}"
            text += ", perhaps for want of memory" if -code == signal.SIGKILL else ""
        with log.open("a") as file:
            last = {"level": "error", "event": "error", "fields": {"code": code}, "text": text}
            file.write(f"\n{json.dumps(last)}\n")
    each.progress.process_s = time.monotonic() - each.began_s
    state = state_of(folder, each.progress.run)
    each.progress.state, each.progress.reason = state.state, state.reason
    each.progress.rounds = state.rounds
    return state


def _leave_out(cell: Cell, left: list[RunProgress]) -> None:
    """Leave out a cell's other seeds, since one of them failed before its first round."""
    for one in [one for one in left if one.run.cell.number == cell.number and not one.rounds]:
        left.remove(one)
        one.left_out = True


def _stop(started: Sequence[_Started]) -> None:
    """Interrupt all processes and wait until they have ended."""
    for each in started:
        each.process.send_signal(signal.SIGINT)
    for each in started:
        each.process.wait()
