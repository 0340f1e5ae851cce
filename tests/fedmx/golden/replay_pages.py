"""The texts of replays of recorded runs and of changed records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmx import Experiment, RunFolder
from fedmx.errors import FedmxError
from fedmx.history import fork, replay, rerun
from fedmx.run.records import JsonLines
from tests.fedmx.golden.fork_pages import SMALL
from tests.fedmx.golden.pack_pages import of_any_machine
from tests.fedmx.recorded_runs import record


def replays(parent: Path) -> str:
    """Replays of a run: its rounds, its parts and its changed records."""
    run = record(Experiment(**{**SMALL, "rounds": 2}), parent)
    taken = {one["client"] for one in run.clients(2)}
    here, absent = min(taken), min({*range(6)} - taken)
    lines = []
    for given in ({}, {"round": 2}, {"round": 2, "client": here}):
        found = replay(run, **given).record()
        for part in found.get("parts", ()):
            for step in part["steps"]:
                lines.append(" ".join(f"{step[name]}" for name in ("end", "step", "pass")))
            del part["steps"]
        lines.append(f"{[*given]}: {json.dumps(found, indent=1)}")
    for name, change in _SPOILED.items():
        copy = Path(shutil.copytree(run.path, parent / name))
        change(copy)
        for given in ({}, {"round": 2, "client": here}):
            lines.append(f"{name} {[*given.items()]}: {_replayed(copy, **given)}")
    for given in (
        {"round": 0},
        {"round": 4},
        {"client": 3},
        {"stop_at": "Stc.send"},
        {"client": 3, "stop_at": "Stc.send"},
        {"round": 2, "client": absent},
        {"round": 2, "client": here, "stop_at": "Stc.sned"},
        {"round": 2, "client": here, "overrides": ["executor.processes=1"]},
        {"overrides": ["seed=2"]},
    ):
        lines.append(f"{given}: {_replayed(run, **given)}")  # type: ignore[arg-type]
    for round in (-1, 0, 5):
        with pytest.raises(FedmxError) as caught:
            rerun(run, round)
        lines.append(f"from {round}: {caught.value}")
    made = fork(run, 1).folder
    with pytest.raises(FedmxError) as caught:
        rerun(made, 1)
    lines.append(f"fork from 1: {caught.value}")
    made.checkpoint_path(1).unlink()
    with pytest.raises(FedmxError) as caught:
        rerun(made, 2)
    lines.append(f"without its checkpoint: {caught.value}")
    return of_any_machine("\n".join(lines))


def _replayed(run: RunFolder | Path, **given: Any) -> str:
    try:
        report = replay(run, **given)
    except FedmxError as error:
        return f"refused: {error}"
    rounds = [f"{one.round} {one.same} {one.record_holds} {one.differing}" for one in report.rounds]
    return f"{report.same} {rounds} {[part.same for part in report.parts]}"


def _line_of(file: str, round: int, **changed: Any) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        lines = JsonLines(run / file)
        rows = list(lines.read())
        lines.path.unlink()
        at = next(row for row in rows if row["round"] == round)
        lines.append({**row, **changed} if row is at else row for row in rows)

    return change


def _without(file: str, round: int) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        JsonLines(run / file).keep(lambda row: row["round"] != round)

    return change


def _damaged_line(file: str, old: bytes) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / file).write_bytes((run / file).read_bytes().replace(old, old.upper(), 1))

    return change


_SPOILED = {
    "another model": _line_of("rounds.jsonl", 2, model_sha256="0" * 64),
    "another accuracy": _line_of("rounds.jsonl", 2, accuracy=0.999),
    "another update": _line_of("clients.jsonl", 2, update_blake3=["0" * 64]),
    "no update": _line_of("clients.jsonl", 2, update_blake3=[]),
    "no chain": _line_of("rounds.jsonl", 2, chain=None),
    "no chain of round 1": _line_of("rounds.jsonl", 1, chain=None),
    "no round 2": _without("rounds.jsonl", 2),
    "no clients of round 2": _without("clients.jsonl", 2),
    "no journal of round 2": _without("journal.jsonl", 2),
    "no journal": _without("journal.jsonl", 1),
    "a damaged round": _damaged_line("rounds.jsonl", b"accuracy"),
    "a damaged client": _damaged_line("clients.jsonl", b"accepted"),
}

REPLAYS: tuple[Callable[[Path], str], ...] = (replays,)
