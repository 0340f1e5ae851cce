"""The progress of a sweep: lines of its cells at any size, and the time left."""

from __future__ import annotations

import io
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedmx.cli import sweep_output
from fedmx.cli.sweep_output import CellLines, SweepLines, total_text
from fedmx.quantities import OF_CLASSES
from fedmx.sweeps.cells import axis_of, cells_of, runs_of
from fedmx.sweeps.folder import SweepFolder
from fedmx.sweeps.processes import LogReader, RunProgress, SweepProgress, _end, _leave_out, _Started


def progress(cells: int = 3, seeds: int = 2) -> SweepProgress:
    axis = axis_of("logic.preset", [f"arm-{number}" for number in range(cells)])
    runs = [
        RunProgress(run, 10, "waiting", metric=OF_CLASSES[0])
        for run in runs_of(cells_of([axis]), range(seeds))
    ]
    return SweepProgress(runs, at_once=2)


def shown(of: SweepProgress, width: int, height: int = 24) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, height=height, force_terminal=True, color_system=None)
    console.print(CellLines(of))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def under_way() -> SweepProgress:
    of = progress()
    first, second = of.runs[0], of.runs[1]
    first.state = "done"
    for number in range(1, 11):
        first.add_round({"round": number, "accuracy": 0.09 * number, "seconds": 2.0})
    second.state = "running"
    second.add_round({"round": 4, "accuracy": 0.5, "seconds": 3.0})
    of.runs[2].state, of.runs[2].reason = "failed", "on purpose"
    return of


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_each_cell_has_a_line_that_fits(width: int) -> None:
    lines = shown(under_way(), width)
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)
    assert [" ".join(line.split()[:2]) for line in lines[:3]] == [
        "arm-0 1/2",
        "arm-1 0/2",
        "arm-2 0/2,",
    ]
    assert lines[1].endswith("round 4/10")
    assert ("best 90.00 %" in lines[0]) == (width >= 80)
    assert "1 of 6 runs done, 1 failed" in lines[3]


def test_running_cells_are_shown_if_not_all_fit() -> None:
    of = progress(cells=40)
    of.runs[30].state = "running"
    lines = shown(of, 80, height=12)
    assert len(lines) < 12
    assert any(line.startswith("arm-30 ") for line in lines)
    assert lines[-1].startswith("and 31 more cells; 0 of 80 runs done")


def test_the_time_left_counts_rounds_by_cell_and_process_starts() -> None:
    of = progress()
    assert of.left_s() is None
    of = under_way()
    # 6 rounds of 3 s of the second cell, 10 more of each, 10 of 2 s, 10 of 23/11 s of the third.
    total = 18 + 30 + 20 + 10 * 23 / 11
    assert of.left_s() == pytest.approx(total / 2)
    of.runs[0].process_s = 24.0  # 4 s besides its rounds; three runs have not started
    assert of.left_s() == pytest.approx((total + 12) / 2)
    assert total_text(of) == "1 of 6 runs done, 1 failed, 1 running, 50 s left"
    of.may_end_early = True
    assert total_text(of) == "1 of 6 runs done, 1 failed, 1 running, at most 50 s left"
    _leave_out(of.runs[5].run.cell, [of.runs[5]])
    assert of.left_s() == pytest.approx((18 + 30 + 20 + 8) / 2)


def test_a_run_that_has_ended_is_said_with_how_many_are_done(monkeypatch) -> None:
    said: list[tuple[str, dict]] = []
    monkeypatch.setattr(
        sweep_output, "say", lambda event, text, **facts: said.append((event, facts))
    )
    of = under_way()
    with SweepLines() as lines:
        lines.show(of, None)
        lines.show(of, of.runs[0])
    ((event, facts),) = said
    assert event == "sweep_run"
    assert (facts["done"], facts["runs"], facts["state"], facts["seed"]) == (1, 6, "done", 0)
    assert (facts["metric"], facts["best"]) == ("accuracy", pytest.approx(0.9))


def test_a_terminal_shows_the_cells_until_the_sweep_ends(monkeypatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    of = under_way()
    with SweepLines() as lines:
        lines.show(of, None)
        assert "arm-2" in terminal.getvalue()
        of.runs[2].state = "failed"
        lines.show(of, of.runs[2])
    shown = terminal.getvalue()
    failed, removed = shown.rindex("failed"), shown.rindex("\x1b[2K")
    assert "\n" in shown[failed:removed], "a failed run has a line of its own"
    assert "arm-" not in shown[removed:], "the cells are removed at the end"


def test_a_log_is_read_line_by_line_between_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [json.dumps({"event": "round", "fields": {"round": one}}) for one in range(100)]
    other = json.dumps({"event": "note", "fields": {"round": 9}})
    path.write_text("\n".join(["of a library", "[1]", other, *lines[:99], lines[99][:20]]))
    reader = LogReader(path)
    assert reader.rounds() == [{"round": one} for one in range(99)]
    with path.open("a") as file:
        file.write(f"{lines[99][20:]}\n[]\n")
    assert reader.rounds() == [{"round": 99}]
    assert reader.rounds() == []


def said(event: str, code: int, text: str) -> dict[str, Any]:
    """The line of a run's log that ends it."""
    level = "error" if event == "error" else "info"
    return {"level": level, "event": event, "fields": {"code": code}, "text": text}


BY_KILL = "its process was ended by SIGKILL, perhaps because memory ran out"


@pytest.mark.parametrize(
    ("script", "logged", "state", "added"),
    [
        ("exit 3", None, "failed", said("error", 3, "its process ended with code 3")),
        ("kill -TERM $$", None, "failed", said("error", -15, "its process was ended by SIGTERM")),
        ("kill -KILL $$", None, "failed", said("error", -9, BY_KILL)),
        ("kill -KILL $$", said("round", 1, ""), "failed", said("error", -9, BY_KILL)),
        ("exit 2", said("error", 2, "no data"), "failed", None),
        ("exit 130", said("error", 130, "interrupted"), "waiting", None),
        ("exit 130", None, "waiting", None),
        ("exit 0", None, "waiting", None),
    ],
    ids=["code", "terminated", "killed", "killed in a round", "told", "told stop", "stop", "done"],
)
def test_a_log_without_an_error_gets_the_end_of_its_process(
    script: str,
    logged: dict[str, Any] | None,
    state: str,
    added: dict[str, Any] | None,
    tmp_path: Path,
) -> None:
    axes = [axis_of("clients", [4, 5])]
    how = {"seeds": [3], "overrides": [], "modules": tmp_path, "target": None}
    sweep = SweepFolder.create(tmp_path, "x", "rounds: 9", axes=axes, **how)
    of = RunProgress(sweep.runs[1], 9, "running", rounds=2)
    log = sweep.log_path(of.run)
    before = f"a library says\n{json.dumps(logged)}\n" if logged else "a library says"
    log.write_text(before)
    with subprocess.Popen(["sh", "-c", script]) as process:
        code = process.wait()
    began_s = time.monotonic() - 100.0
    found = _end(sweep, _Started(of, process, LogReader(log), began_s), code)
    assert log.read_text() == before + (f"\n{json.dumps(added)}\n" if added else "")
    told = added or logged
    reason = str(told["text"]) if told and state == "failed" else ""
    assert (found.state, found.reason, found.failed_at_once) == (state, reason, state == "failed")
    assert (of.state, of.reason, of.rounds) == (state, reason, 0)
    assert of.process_s is not None
    assert 100.0 <= of.process_s <= time.monotonic() - began_s
