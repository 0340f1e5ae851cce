"""The tasks of rounds that do not wait, on one clock: those in work while a version was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.report.formats import finite
from fedmx.report.summary import RunSummary

LEAST_VERSIONS, MOST_VERSIONS = 6, 20
TIMES = ("asked_s", "trained_s", "decided_s", "sending_s", "ended_s")


@dataclass(frozen=True)
class Window:
    """The tasks in work from the beginning of one round to the end of another.

    Attributes:
        first: the first round.
        records: a client record for each task, in the order of their beginnings. Times are seconds
            since the window began; a task that began before has its earlier times at 0. The status
            of a task that had not ended when the window did is in-flight.
        ends_s: when each version of the window was made, in seconds; the last is the window's end.
    """

    first: int
    records: Sequence[Mapping[str, Any]]
    ends_s: Sequence[float]


def window_of(run: RunSummary, last: int, records: Sequence[Mapping[str, Any]]) -> Window | None:
    """Return the window that ends with a round, and begins before the oldest of its tasks.

    It has at least `LEAST_VERSIONS` rounds, as far as there are as many, and at most
    `MOST_VERSIONS`. A task has a record in the round that sent it, and another one in the round in
    which it ended; both are one task here. None: the round's tasks do not outlive it, or it has no
    recorded time.

    Args:
        run: the run.
        last: the round.
        records: its client records.
    """
    versions = [one["version"] for one in records if isinstance(one.get("version"), int)]
    begins = {
        point.round: point.clock_elapsed_s - point.clock_s
        for point in run.points
        if point.clock_elapsed_s is not None and point.clock_s is not None
    }
    if not versions or last not in begins:
        return None
    first = min(min(versions) + 1, last - LEAST_VERSIONS + 1)
    first = max(first, last - MOST_VERSIONS + 1, min(begins))
    start_s = begins[first]
    ends_s = [
        point.clock_elapsed_s - start_s
        for point in run.points
        if first <= point.round <= last and point.clock_elapsed_s is not None
    ]
    tasks: list[dict[str, Any]] = []
    open_tasks: dict[Any, dict[str, Any]] = {}
    for record in run.folder.clients():
        if record.get("round") not in begins or record["round"] < first:
            continue
        task = _moved(record, begins[record["round"]] - start_s, ends_s[-1])
        open_tasks.pop(record.get("client"), None)  # it is the same task
        if task is None:
            continue
        if record.get("status") == "in-flight":
            open_tasks[record.get("client")] = task
        else:
            tasks.append(task)
    tasks += open_tasks.values()
    return Window(first, sorted(tasks, key=lambda task: float(task["asked_s"])), ends_s)


def _moved(record: Mapping[str, Any], by_s: float, end_s: float) -> dict[str, Any] | None:
    """Return a record with its times `by_s` seconds later; None: it is not in the window."""
    times = {key: at_s + by_s for key in TIMES if (at_s := finite(record.get(key))) is not None}
    if times.get("ended_s", 0.0) < 0 or times.get("asked_s", end_s) >= end_s:
        return None
    task = {key: value for key, value in record.items() if key not in TIMES}
    if times.get("ended_s", end_s + 1.0) > end_s:
        task["status"] = "in-flight"
    return {**task, **{key: max(at_s, 0.0) for key, at_s in times.items() if at_s <= end_s}}
