"""The runs of a sweep as processes of ``fedmx run`` and ``fedmx resume``, some at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmx.sweeps.cells import Cell, CellRun
from fedmx.sweeps.folder import SweepFolder
from fedmx.sweeps.progress import LogReader, RunProgress, SweepProgress
from fedmx.sweeps.state import INTERRUPTED, RunState, failure_in, state_of

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
