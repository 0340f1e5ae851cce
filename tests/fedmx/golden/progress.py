"""The line about a run's progress, after each of some rounds and at several widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedmx.cli import rounds
from fedmx.cli.rounds import RECENT_ROUNDS, ProgressLine, fitted
from layers.logic import RoundReport, Traffic

MIB = 1 << 20


def a_record(round: int, accuracy: float | None = 0.5, **more: Any) -> dict[str, Any]:
    bytes_of = {"up_bytes": MIB, "down_bytes": 2 * MIB}
    return {"round": round, "accuracy": accuracy, **bytes_of, **more}


class Run:
    """A run whose rounds are added, with the seconds that each takes."""

    def __init__(self, patch: pytest.MonkeyPatch, last: int, done: int = 0, **how: Any) -> None:
        self.now_s = 5000.0
        self.line = ProgressLine(last, done, **how)
        self.records: list[dict[str, Any]] = []
        self.folder: Any = SimpleNamespace(rounds=lambda: self.records)
        patch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def add(self, round: int, seconds: float, accuracy: float | None = 0.5, **told: Any) -> None:
        self.now_s += seconds
        self.records.append(a_record(round, accuracy))
        known = {"round": round, "seconds": seconds, "up_bytes": MIB, "down_bytes": 2 * MIB}
        known |= {"virtual": False, "clock_elapsed_s": 0.0, "accuracy": accuracy, "loss": 0.25}
        known |= {"updates": 3, "staleness": None, "epsilon": None}
        known["report"] = RoundReport(round, 0.1, 3, (), Traffic())
        told_round: Any = SimpleNamespace(**{**known, **told})
        self.line.add_round(told_round, self.folder)


IN_FLIGHT = {"report": RoundReport(1, 0.1, 3, (), Traffic(), in_flight=4)}
VIRTUAL = {"virtual": True, "clock_elapsed_s": 5.0}
Step = float | tuple[int, float] | tuple[int, float, float | None] | tuple[Any, ...]
# Of each run: how it begins, the records before, and rounds (or seconds without one) one by one.
SCENES: Mapping[str, tuple[dict[str, Any], Sequence[dict[str, Any]], Sequence[Step]]] = {
    "time passes": ({}, [], [(1, 2.0), 3.0, 100.0, (2, 4.0)]),
    "the latest rounds count": (
        {"last": 60},
        [],
        [(1, 9.0), *((round, 1.0) for round in range(2, 3 + RECENT_ROUNDS)), (59, 1.0), (60, 1.0)],
    ),
    "a target may end it": ({"may_end_early": True}, [], [(1, 2.0)]),
    "resumed after round 7": ({"done": 7}, [], []),
    "resumed a day later": (
        {"done": 10},
        [a_record(round, seconds=900.0, elapsed_s=9e4) for round in range(1, 11)],
        [86400.0, (11, 2.0), (12, 4.0)],
    ),
    "seldom evaluated": ({}, [], [(1, 1.0, None), (2, 1.0, 0.75), (3, 1.0, None, {"loss": None})]),
    "the best before a resume": (
        {"done": 4},
        [a_record(1, 0.25), a_record(2, 0.75), a_record(3, None), a_record(4, 0.75)],
        [(5, 1.0, 0.5), (6, 1.0, None), (7, 1.0, 0.8)],
    ),
    "virtual time at first": ({}, [], [(1, 1.0, 0.75, VIRTUAL), (2, 1.0)]),
    "versions": (
        {},
        [],
        [
            (1, 2.0, 0.5, {"staleness": (0, 3), **IN_FLIGHT}),
            (2, 1.0, 0.5, {"staleness": (), **IN_FLIGHT}),
        ],
    ),
}


def progress(parent: Path) -> str:
    """What the line says after each step; then in a log, and where there is less and less room."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        for title, (how, before, steps) in SCENES.items():
            run = Run(patch, **{"last": 20, **how})
            run.records = list(before)
            lines += ["", f"{title}:", "  ".join(run.line.parts())]
            for step in steps:
                if isinstance(step, float):
                    run.now_s += step
                else:
                    round, seconds, *accuracy = step[:3]
                    run.add(round, seconds, *accuracy, **(step[3] if len(step) > 3 else {}))
                lines += ["  ".join(run.line.parts()), f"log: {run.line.history(200)}"]
        run = Run(patch, 20)
        run.add(1, 1.0, 0.75)
        run.add(2, 1.0, **VIRTUAL)
        lines += ["", "widths:"]
        widths = (140, 100, 80, 70, 60, 45, 30, 20)
        lines += [f"{width:3}: {fitted(run.line.columns(), width)}" for width in widths]
    return "\n".join(lines[1:])


PROGRESS: tuple[Callable[[Path], str], ...] = (progress,)
