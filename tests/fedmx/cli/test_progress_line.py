"""The line about a run's progress: its bytes, its width, and the time left by a set clock."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmx import Round, RunFolder
from fedmx.cli import rounds
from fedmx.cli.rounds import RECENT_ROUNDS, ProgressLine, RoundProgress, _uncounted_text, fitted
from fedmx.server.evaluation import Evaluation
from layers.logic import ClientReport, RoundReport, Traffic

MIB = 1 << 20


def a_record(round: int, accuracy: float | None = 0.5) -> dict[str, Any]:
    return {"round": round, "accuracy": accuracy, "up_bytes": MIB, "down_bytes": 2 * MIB}


class Run:
    """A run whose rounds a test adds, with the seconds that each takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.now_s = 5000.0
        self.line = ProgressLine(last)
        self.records: list[dict[str, Any]] = []
        self.folder: Any = SimpleNamespace(rounds=lambda: self.records, facts={})
        monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def add(self, round: int, seconds: float, accuracy: float | None = 0.5, **told: Any) -> None:
        self.now_s += seconds
        self.records.append(a_record(round, accuracy))
        known = {"round": round, "seconds": seconds, "up_bytes": MIB, "down_bytes": 2 * MIB}
        values = {} if accuracy is None else {"accuracy": accuracy, "loss": 0.25}
        known |= {"virtual": False, "clock_elapsed_s": 0.0, "loss": 0.25}
        known |= {
            "updates": 3,
            "staleness": None,
            "epsilon": None,
            "evaluation": Evaluation(values),
            "report": RoundReport(round, 0.1, 3, (), Traffic()),
        }
        told_round: Any = SimpleNamespace(**{**known, **told})
        self.line.add_round(told_round, self.folder)

    def left(self) -> str | None:
        last = self.line.parts()[-1]
        return last.removesuffix(" left") if last.endswith("left") else None


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch, 20)


def test_before_the_first_round_there_is_no_more_to_say(run: Run) -> None:
    assert run.line.parts() == ["round 0/20", "round 1 has begun"]
    assert ProgressLine(20, 7).parts() == ["round 7/20", "round 8 has begun"]


def test_after_one_round_its_own_time_tells_what_is_left(run: Run) -> None:
    run.add(1, 2.0)
    assert run.left() == "38 s"
    run.now_s += 3.0
    assert run.left() == "35 s"
    run.now_s += 100.0
    assert run.left() == "0 s"


def test_the_time_that_is_left_follows_the_latest_rounds(run: Run) -> None:
    run.add(1, 2.0)
    run.add(2, 4.0)
    assert run.left() == "54 s"
    for round in range(3 - RECENT_ROUNDS, 3):
        run.add(round, 1.0)
    assert run.left() == "18 s"


def test_where_a_target_may_end_the_run_the_time_is_that_of_all_rounds_at_most(run: Run) -> None:
    run.line = ProgressLine(20, may_end_early=True)
    run.add(1, 2.0)
    assert run.left() == "at most 38 s"


def test_after_the_last_round_nothing_is_left(run: Run) -> None:
    run.add(19, 2.0)
    assert run.left() == "2 s"
    run.add(20, 2.0)
    assert run.left() is None


def test_the_bytes_of_a_resumed_run_have_those_before_and_each_round_once(run: Run) -> None:
    run.records = [a_record(round) for round in (1, 2, 3)]
    run.add(4, 1.0)
    assert run.line.parts()[3:5] == ["up 4.00 MiB", "down 8.00 MiB"]
    run.add(5, 1.0)
    assert run.line.parts()[3:5] == ["up 5.00 MiB", "down 10.00 MiB"]


def test_a_round_without_an_evaluation_keeps_the_accuracy_and_loss_that_are_known(run: Run) -> None:
    run.add(1, 1.0, None)
    assert run.line.parts()[1] == "up 1.00 MiB"
    run.add(2, 1.0, 0.75)
    run.add(3, 1.0, None, loss=None)
    assert run.line.parts()[:3] == ["round 3/20", "accuracy 75.00 %", "loss 0.2500"]


def test_virtual_time_is_shown_where_it_runs(run: Run) -> None:
    run.add(1, 1.0, virtual=True, clock_elapsed_s=5.0)
    assert run.line.parts()[:4] == [
        "round 1/20",
        "accuracy 50.00 %",
        "loss 0.2500",
        "virtual time 5.00 s",
    ]
    run.add(2, 1.0)
    assert not any("virtual" in part for part in run.line.parts())


def test_rounds_that_do_not_wait_are_versions_with_their_updates_in_a_second(run: Run) -> None:
    report = RoundReport(1, 0.1, 3, (), Traffic(), in_flight=4)
    run.add(1, 2.0, staleness=(0, 3), report=report)
    assert run.line.parts()[0] == "version 1/20"
    assert run.line.parts()[3:6] == ["staleness 1.5", "4 in flight", "1.5 updates/s"]
    run.add(2, 1.0, staleness=(), report=report)
    assert run.line.parts()[3:5] == ["4 in flight", "2 updates/s"]
    assert fitted(run.line.columns(), 46) == "version 2/20  acc 50.00 %  27 s left"


def test_tasks_in_flight_are_no_updates_that_did_not_count() -> None:
    clients = (
        ClientReport(1, "accepted"),
        ClientReport(1, "accepted"),
        ClientReport(2, "lost"),
        ClientReport(1, "in-flight"),
    )
    report = RoundReport(1, 0.1, 4, clients, Traffic(), in_flight=1)
    assert _uncounted_text(Round(report, Evaluation(), 1.0, 1.0)).startswith("1 of 3")


def test_the_time_that_is_left_in_a_resumed_run_is_that_of_its_own_rounds(run: Run) -> None:
    run.records = [a_record(round) | {"seconds": 900.0, "elapsed_s": 9e4} for round in range(1, 11)]
    run.now_s += 86400.0  # a day later
    run.add(11, 2.0)
    assert run.left() == "18 s"
    run.add(12, 4.0)
    assert run.left() == "24 s"


def test_the_best_round_is_known_also_from_before_a_resume(run: Run) -> None:
    run.records = [a_record(1, 0.25), a_record(2, 0.75), a_record(3, None), a_record(4, 0.75)]
    run.add(5, 1.0, 0.5)
    assert "best 75.00 % in round 2" in run.line.history(200)
    run.add(6, 1.0, None)
    assert "best 75.00 % in round 2" in run.line.history(200)
    run.add(7, 1.0, 0.8)
    assert "accuracy 80.00 %  loss 0.2500  best so far" in run.line.history(200)


def test_what_matters_least_goes_first_where_a_terminal_is_narrow(run: Run) -> None:
    run.add(1, 1.0, 0.75)
    run.add(2, 1.0, virtual=True, clock_elapsed_s=5.0)
    columns = run.line.columns()
    assert [fitted(columns, width) for width in (140, 100, 80, 70, 60, 45, 30, 20)] == [
        "round 2/20  accuracy 50.00 %  loss 0.2500  best 75.00 % in round 1  virtual time 5.00 s  "
        "up 2.00 MiB  down 4.00 MiB  18 s left",
        "round 2/20  acc 50.00 %  loss 0.2500  best 75.00 %  virtual 5.00 s  "
        "up 2.00 MiB  18 s left",
        "round 2/20  acc 50.00 %  loss 0.2500  best 75.00 %  virtual 5.00 s  18 s left",
        "round 2/20  acc 50.00 %  loss 0.2500  best 75.00 %  18 s left",
        "round 2/20  acc 50.00 %  loss 0.2500  18 s left",
        "round 2/20  acc 50.00 %  18 s left",
        "2/20  acc 50.00 %  18 s left",
        "2/20  acc 50.00 %",
    ]


@given(st.integers(18, 200), st.integers(0, 12))
def test_a_line_is_never_wider_than_the_terminal_and_never_without_round_and_accuracy(
    width: int, rounds: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        run = Run(patch, 20)
        for round in range(1, rounds + 1):
            run.add(round, 1.0, virtual=True, clock_elapsed_s=60.0 * round)
        line = fitted(run.line.columns(), width)
    assert len(line) <= width
    assert f"{rounds}/20" in line
    assert not rounds or "50.00 %" in line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def stays(self) -> list[str]:
        """The lines above the one that goes."""
        return re.findall(r"\x1b\[2K([^\r\n\x1b]*)\n", self.getvalue())[:-1]


def test_the_log_every_tenth_round_and_uncounted_updates_stay_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "90")
    folder = RunFolder.create(tmp_path, "a", "", {})
    with RoundProgress(20) as progress:
        for number in range(1, 13):
            fates = ("accepted", *(["rejected"] * (number in (3, 10))))
            clients = tuple(ClientReport(one, fate) for one, fate in enumerate(fates))  # type: ignore[arg-type]
            report = RoundReport(number, 0.1, 3, clients, Traffic(MIB, 2 * MIB))
            accuracy = 0.5 if number == 2 else 0.25
            one = Round(
                report, Evaluation({"accuracy": accuracy, "loss": 1 / number}), 1.0, float(number)
            )
            folder.append_round(one.record())
            progress.show(one, folder)
        progress.say("event", "a line of the log, [bold] or not")
    assert terminal.stays == [
        "round 3: 1 of 2 did not count: 1 rejected",
        "round 10: 1 of 2 did not count: 1 rejected",
        "round 10/20  accuracy 25.00 %  loss 0.1000  best 50.00 %  up 20.00 MiB  down 10.00 MiB",
        "a line of the log, [bold] or not",
    ]
