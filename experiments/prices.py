"""What open rows and claims cost: hours of one core, at the pace of the runs at hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from cells import Cell, cells
from records import Record, load


def hours_left(chosen: Iterable[Cell]) -> float | None:
    """Return the hours until these runs end, at most; None: no run shows the pace of one.

    A run has the pace of its record. One that has not begun has the median pace, for each local
    epoch, of those runs of its group that have the most labels in common with it.
    """
    left = [_left(cell) for cell in chosen]
    known = [hours for hours in left if hours is not None]
    return sum(known) if len(known) == len(left) else None


def text(hours: float | None) -> str:
    """Return hours as the pages print them after ``open``; empty if they are not known."""
    if hours is None:
        return ""
    return f", up to {hours:,.0f} h" if hours >= 10 else f", up to {max(hours, 0.1):.1f} h"


def _left(cell: Cell) -> float | None:
    records = load(cell.group)
    own = records.get(cell.name)
    if own and own.reason:
        return 0.0
    known = [cell] if own else _nearest(cell, records)
    if not known:
        return None
    pace = statistics.median(
        records[one.name].hours / records[one.name].rounds / _epochs(one) for one in known
    )
    return pace * _epochs(cell) * max(0, cell.experiment().rounds - (own.rounds if own else 0))


def _nearest(cell: Cell, records: dict[str, Record]) -> list[Cell]:
    alike = {
        other: len(set(other.labels) & set(cell.labels))
        for other in cells([cell.group])
        if other.name in records
    }
    return [one for one, common in alike.items() if common == max(alike.values())]


def _epochs(cell: Cell) -> int:
    return cell.experiment().compute.train.epochs
