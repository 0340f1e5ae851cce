"""Experiments of many runs: each finished run is a line of a file, and does not run again."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Cell(Protocol):
    """A run: a frozen dataclass of plain values, which says what it is."""

    def run(self) -> dict[str, Any]:
        """Run it, and return its results."""


AnyCell = TypeVar("AnyCell", bound=Cell)


def resumable_options(text: str) -> argparse.ArgumentParser:
    """Return a parser with the options of `run_cells`; `text` is the program's docstring."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0, help="after these no run begins")
    parser.add_argument("--at-once", type=int, default=2, help="runs at the same time")
    parser.add_argument("--table", action="store_true", help="run nothing")
    return parser


def finished(file: Path, kind: type[AnyCell]) -> dict[AnyCell, Mapping[str, Any]]:
    """Return the lines of the finished runs, by their cells."""
    lines = file.read_text().splitlines() if file.exists() else []
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    records = [json.loads(line) for line in lines]
    return {kind(**{name: one[name] for name in names}): one for one in records}


def run_cells(file: Path, cells: Iterable[AnyCell], options: argparse.Namespace) -> None:
    """Run the cells that are not finished, in their order, until the time is up.

    Args:
        file: gets a line for each.
        cells: all cells.
        options: of `resumable_options`.
    """
    ends = time.monotonic() + 3600 * options.hours
    todo = list(cells)
    known = finished(file, type(todo[0])) if todo else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(options.at_once) as pool:
        pending: dict[AnyCell, AsyncResult[dict[str, Any]]] = {}
        for cell in todo:
            if cell in known or time.monotonic() > ends:
                continue
            pending[cell] = pool.apply_async(cell.run)
            while len(pending) >= options.at_once:
                _write(file, pending)
        while pending:
            _write(file, pending)


def _write(file: Path, pending: dict[AnyCell, AsyncResult[dict[str, Any]]]) -> None:
    """Append the lines of the runs that have ended, and forget them."""
    time.sleep(0.2)
    for cell in [cell for cell, run in pending.items() if run.ready()]:
        line = {**vars(cell), **pending.pop(cell).get()}
        with file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
