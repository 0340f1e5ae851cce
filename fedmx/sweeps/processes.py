"""The runs of a sweep as processes of ``fedmx run``, and their progress."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmx.fork_server import COMMAND, ForkedProcess, ForkServer
from fedmx.quantities import Quantity
from fedmx.report.formats import finite
from fedmx.sweeps.cells import Cell, CellRun
from fedmx.sweeps.folder import INTERRUPTED, RunState, State, SweepFolder, failure_in, state_of


@dataclass
class RunProgress:
    """One run while the sweep works.

    Attributes:
        run: the cell and the seed.
        planned: the number of rounds in the experiment.
        state: see `RunState`.
        rounds: the number of completed rounds.
        metric: the metric that stands for the model; None: not known yet.
        best: its best value; None: not evaluated yet.
        seconds: the duration of the rounds of this process.
        timed: the number of these rounds.
        reason: why it failed.
        left_out: whether it is skipped because another seed of the cell failed at once.
        process_s: the duration of its process; None: it has not ended.
    """

    run: CellRun
    planned: int
    state: State
    rounds: int = 0
    metric: Quantity | None = None
    best: float | None = None
    seconds: float = 0.0
    timed: int = 0
    reason: str = ""
    left_out: bool = False
    process_s: float | None = None

    @classmethod
    def of(cls, state: RunState, planned: int) -> RunProgress:
        """Return the progress of a run before it starts or resumes."""
        metric = state.metric if state.metrics else None
        done = state.rounds, metric, state.best_value
        return cls(state.run, planned, state.state, *done, reason=state.reason)

    @property
    def left(self) -> int:
        """The number of rounds left, at most."""
        ended = self.state in ("done", "failed")
        return 0 if ended or self.left_out else max(self.planned - self.rounds, 0)

    def add_round(self, record: Mapping[str, Any]) -> None:
        """Add a round from the log."""
        self.rounds = int(record.get("round", self.rounds))
        seconds = record.get("seconds")
        if self.metric is not None:
            self.best = self.metric.best([self.best, finite(record.get(self.metric.key))])
        if isinstance(seconds, float):
            self.seconds += seconds
            self.timed += 1


@dataclass
class SweepProgress:
    """All runs of a sweep while it works.

    Attributes:
        runs: in the order in which they start.
        at_once: the number of parallel runs.
        may_end_early: whether a target may end a run before its last round.
    """

    runs: Sequence[RunProgress]
    at_once: int
    may_end_early: bool = False

    def of(self, cell: Cell) -> list[RunProgress]:
        """Return the runs of a cell."""
        return [one for one in self.runs if one.run.cell.number == cell.number]

    def left_s(self) -> float | None:
        """Return the seconds until all runs end, at most; None: not known yet."""
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
        """Return the mean duration of a round of a cell, or else of all cells."""
        for chosen in (self.of(cell), self.runs):
            timed = sum(one.timed for one in chosen)
            if timed:
                return sum(one.seconds for one in chosen) / timed
        return None

    def _start_s(self) -> float:
        """Return the time of a process besides its rounds: the mean over ended processes."""
        others = [one.process_s - one.seconds for one in self.runs if one.process_s is not None]
        return sum(others) / len(others) if others else 0.0


@dataclass
class LogReader:
    """Reads the lines that a run adds to its log.

    Attributes:
        path: the log.
        offset: the position of the next line.
    """

    path: Path
    offset: int = field(default=0)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the rounds in the lines since the last call."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            lines = file.read().split(b"\n")
        self.offset += sum(len(line) + 1 for line in lines[:-1])
        found = []
        for line in lines[:-1]:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line from a library
            if isinstance(event, dict) and event.get("event") == "round":
                found.append(event["fields"])
        return found


TICK_S = 0.1
Show = Callable[[SweepProgress, "RunProgress | None"], None]
"""Called at each tick, and with a run when it has ended."""


@dataclass(frozen=True)
class Options:
    """The options of all runs of a sweep.

    Attributes:
        at_once: the number of parallel runs.
        modules: the modules whose code the experiment may name, as after ``--module``.
        executor: replaces the experiment's, as after ``--executor``.
        imported: the modules that the runs have in common, besides those of each command.
    """

    at_once: int
    modules: Sequence[str] = ()
    executor: str | None = None
    imported: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """The options as words of a command."""
        words = [word for one in self.modules for word in ("--module", one)]
        return [*words, *(() if self.executor is None else ("--executor", self.executor))]


@dataclass(frozen=True)
class _Started:
    progress: RunProgress
    process: ForkedProcess
    log: LogReader
    began_s: float


def run_all(folder: SweepFolder, progress: SweepProgress, options: Options, show: Show) -> None:
    """Run all runs that are not done; the caller holds the folder's lock.

    A run that fails does not end the others. Runs that another process still works on, as for a
    moment after a sweep was killed, are waited for.

    Args:
        folder: of the sweep.
        progress: of its runs; it is kept up to date.
        options: of the processes.
        show: see `Show`.

    Raises:
        KeyboardInterrupt: all processes have ended in an orderly way.
    """
    left = [one for one in progress.runs if one.state != "done"]
    for one in left:
        one.state, one.reason, one.left_out = "waiting", "", False
    started: list[_Started] = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with ForkServer([*COMMAND, *options.imported], environment) as server:
        try:
            while left or started:
                while len(started) < options.at_once and (begun := _next(folder, left)) is not None:
                    started.append(_start(server, folder, begun, options))
                time.sleep(TICK_S)
                for each in list(started):
                    _follow(each, folder, progress, left, started, show)
                show(progress, None)
        except BaseException:
            _stop(started)
            raise


def _follow(
    each: _Started,
    folder: SweepFolder,
    progress: SweepProgress,
    left: list[RunProgress],
    started: list[_Started],
    show: Show,
) -> None:
    """Take over what a run has logged, and its end if it has ended."""
    code = each.process.poll()
    for record in each.log.rounds():
        if each.progress.metric is None:
            known = state_of(folder, each.progress.run).metrics
            each.progress.metric = known[0] if known else None
        each.progress.add_round(record)
    if code is not None:
        started.remove(each)
        if _end(folder, each, code).failed_at_once:
            _leave_out(each.progress.run.cell, left)
        show(progress, each.progress)


def _next(folder: SweepFolder, left: list[RunProgress]) -> RunProgress | None:
    """Take the first run from `left` on which no other process works."""
    for one in list(left):
        state = state_of(folder, one.run)
        if state.state != "running":
            left.remove(one)
        if state.state == "done":  # that other process was faster
            one.state, one.rounds, one.reason = state.state, state.rounds, state.reason
        elif state.state != "running":
            return one
    return None


def _start(
    server: ForkServer, folder: SweepFolder, progress: RunProgress, options: Options
) -> _Started:
    progress.state = "running"
    path = folder.log_path(progress.run)
    path.parent.mkdir(exist_ok=True)
    words = [*command(folder, progress.run), "--log-format", "json", *options.words]
    with path.open("ab") as log, open(os.devnull, "r+b") as nothing:
        reader = LogReader(path, log.tell())
        files = nothing.fileno(), nothing.fileno(), log.fileno()
        process = server.popen("fedmx", words, files)
    return _Started(progress, process, reader, time.monotonic())


def command(folder: SweepFolder, run: CellRun) -> list[str]:
    """Return the words after ``fedmx`` that start or resume a run."""
    path = folder.run_path(run)
    if path is not None:
        return ["resume", str(path)]
    where = [f"name={json.dumps(run.name)}", f"run.folder={json.dumps(str(folder.path))}"]
    overrides = [*folder.manifest.overrides, *run.overrides, *where]
    words = [word for one in overrides for word in ("--set", one)]
    return ["run", str(folder.experiment_path), *words, "--beside", folder.manifest.modules]


def _end(folder: SweepFolder, each: _Started, code: int) -> RunState:
    """Return the state of a run whose process has ended, and update its progress.

    If the process logged no error, the log gets one.
    """
    log = folder.log_path(each.progress.run)
    if code not in (0, INTERRUPTED) and failure_in(log) is None:
        text = f"its process ended with code {code}"
        if code < 0:
            text = f"its process was ended by {signal.Signals(-code).name}"
            text += ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        with log.open("a") as file:
            last = {"level": "error", "event": "error", "fields": {"code": code}, "text": text}
            file.write(f"\n{json.dumps(last)}\n")
    each.progress.process_s = time.monotonic() - each.began_s
    state = state_of(folder, each.progress.run)
    each.progress.state, each.progress.reason = state.state, state.reason
    each.progress.rounds = state.rounds
    return state


def _leave_out(cell: Cell, left: list[RunProgress]) -> None:
    """Skip a cell's other seeds because one failed before its first round."""
    for one in [one for one in left if one.run.cell.number == cell.number and not one.rounds]:
        left.remove(one)
        one.left_out = True


def _stop(started: Sequence[_Started]) -> None:
    """Interrupt all processes and wait until they have ended."""
    for each in started:
        each.process.send_signal(signal.SIGINT)
    for each in started:
        each.process.wait()
