"""The run folders of the cells: runs/papers/GROUP/CELL-TIME, below the current folder."""

from __future__ import annotations

from pathlib import Path

from cells import Cell

from fedmx import RunFolder

RUNS = Path("runs/papers")


def run_folder(cell: Cell) -> RunFolder | None:
    """Return the newest folder of a cell's run, None if it has not begun.

    A run with other settings, which cells.yaml had before, is none of the cell's.
    """
    paths = sorted((RUNS / cell.group).glob(f"{cell.name}-2*/run.json"), reverse=True)
    if not paths:
        return None
    digest = cell.experiment().digest()
    folders = (RunFolder.open(path.parent) for path in paths)
    return next((one for one in folders if one.facts["digest"] == digest), None)


def end_of(folder: RunFolder) -> str | None:
    """Return why a run has ended; None if it has more rounds to run.

    A run that has diverged fails in the same round when it is resumed.
    """
    diverged = folder.reason.startswith(("TooFewUpdates", "BrokenModel"))
    return folder.reason if folder.status == "done" or diverged else None
