"""The line about a run's progress on any terminal; the page `progress` has what it says."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmx import Round, RunFolder
from fedmx.cli.rounds import RoundProgress, _uncounted_text, fitted
from layers.logic import ClientReport, RoundReport, Traffic
from tests.fedmx.golden.progress import MIB, Run


def test_tasks_in_flight_are_no_updates_that_did_not_count() -> None:
    clients = (
        ClientReport(1, "accepted"),
        ClientReport(1, "accepted"),
        ClientReport(2, "lost"),
        ClientReport(1, "in-flight"),
    )
    report = RoundReport(1, 0.1, 4, clients, Traffic(), in_flight=1)
    assert _uncounted_text(Round(report, None, None, 1.0, 1.0)).startswith("1 of 3")


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
            one = Round(report, accuracy, 1 / number, 1.0, float(number))
            folder.append_round(one.record())
            progress.show(one, folder)
        progress.say("event", "a line of the log, [bold] or not")
    assert terminal.stays == [
        "round 3: 1 of 2 did not count: 1 rejected",
        "round 10: 1 of 2 did not count: 1 rejected",
        "round 10/20  accuracy 25.00 %  loss 0.1000  best 50.00 %  up 20.00 MiB  down 10.00 MiB",
        "a line of the log, [bold] or not",
    ]
