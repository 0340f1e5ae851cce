"""Run the cells of the papers' tables and figures, in the background and for as long as you like.

    python experiments/run.py [CELL ...] [--open] [--list]
                              [--at-once 2] [--hours 2] [--cell-minutes 20]

CELL is a group (``stc-mnist``), a cell with all its seeds (``stc-mnist/stc-lr0.1``) or with one
(``stc-mnist/stc-lr0.1-s2``), or a pattern of any of them (``stc-mnist/fedavg-*``); the default is
all cells. Run folders are runs/papers/GROUP/CELL-TIME. Cells that are done or have diverged do not
run again; interrupted ones are resumed. With `--cell-minutes` a cell stops after this time, and
continues when the program starts again; Ctrl-C stops all cells in the same way. The exit code is 1
if a cell failed. `python experiments/records.py` then stores the data for tables and figures.
`--open` leaves out cells whose records have ended, on any machine; `--list` shows the progress of
the others.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cells import Cell, cells
from folders import RUNS, end_of, run_folder
from records import Record, load

FEDMX = [sys.executable, "-m", "fedmx"]
AGAIN_S = 30.0  # until a run that did not end is interrupted again


def main(arguments: Sequence[str] | None = None) -> None:
    """Run cells until all are done or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cells", nargs="*", metavar="CELL", default=["*"])
    parser.add_argument("--at-once", type=int, default=2, help="cells that run side by side")
    parser.add_argument("--hours", type=float, default=2.0, help="time for all of them")
    parser.add_argument("--cell-minutes", type=float, default=None, help="time for one of them")
    parser.add_argument("--open", action="store_true", help="only cells without an ended record")
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    options = parser.parse_args(arguments)
    try:
        chosen = cells(options.cells)
    except LookupError as error:
        parser.error(str(error))
    if options.open:
        chosen = [cell for cell in chosen if not ((kept := _record(cell)) and kept.reason)]
    if options.at_once < 1:
        parser.error(f"--at-once must be 1 or more, not {options.at_once}")
    if options.list:
        for cell in chosen:
            print(f"{cell.path}: fedmx {shlex.join(cell.command())}{_progress(cell)}")
        return
    end = time.monotonic() + 3600 * options.hours
    patience = 60 * options.cell_minutes if options.cell_minutes else float("inf")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _stopping.set())
    with ThreadPoolExecutor(options.at_once) as lanes:
        failed = list(lanes.map(lambda cell: _run(cell, end, patience), chosen))
    sys.exit(1 if any(failed) else 0)


def _record(cell: Cell) -> Record | None:
    return load(cell.group).get(cell.name)


def _progress(cell: Cell) -> str:
    """Return the progress of the cell's record, as a shell comment."""
    kept = _record(cell)
    if kept is None:
        return "  # not begun"
    if kept.reason:
        return f"  # {kept.reason}"
    pace = 3600 * kept.hours / kept.rounds
    return f"  # {kept.rounds:,} of {cell.experiment().rounds:,} rounds, {pace:.1f} s each"


_printing = threading.Lock()
_stopping = threading.Event()


def _run(cell: Cell, end: float, patience: float) -> bool:
    """Begin or resume a cell's run, and interrupt it when its time is up.

    Returns:
        Whether it failed.
    """
    folder = run_folder(cell)
    if _stopping.is_set() or time.monotonic() > end or (folder and end_of(folder)):
        return False
    RUNS.joinpath(cell.group).mkdir(parents=True, exist_ok=True)
    where = [f"name={cell.name}", f"run.folder={RUNS / cell.group}"]
    begin = [*cell.command(), "--own-modules", *(word for one in where for word in ("--set", one))]
    command = ["resume", str(folder.path), "--own-modules"] if folder else begin
    before = time.monotonic()
    with RUNS.joinpath(cell.group, f"{cell.name}.log").open("a") as log:
        # In a session of its own: a Ctrl-C in the terminal reaches it once, from here.
        process = subprocess.Popen(
            [*FEDMX, *command], stdout=log, stderr=log, start_new_session=True
        )
        while process.poll() is None and not _stopping.wait(0.5):
            if time.monotonic() > min(end, before + patience):
                break
        if process.poll() is None:
            while process.poll() is None:  # a process that still imports may lose a Ctrl-C
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(AGAIN_S)
            failed, how = False, "interrupted"
        else:
            failed = process.returncode != 0
            how = f"failed, see {log.name}" if failed else "done"
    minutes = (time.monotonic() - before) / 60
    with _printing:
        print(f"{cell.path}: {how} after {minutes:.1f} min", flush=True)
    return failed


if __name__ == "__main__":
    main()
