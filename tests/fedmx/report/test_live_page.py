"""The page of a run that goes on is written again and again, and reloads itself until the end."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from fedmx import Experiment, RunFolder, recorded, simulate
from fedmx.report import live, write_report
from fedmx.report.live import LivePage, write_elsewhere
from fedmx.run import RunError
from tests.fedmx.processes import until
from tests.fedmx.recorded_runs import TREE

pytestmark = pytest.mark.usefixtures("page")

REFRESH = 'http-equiv="refresh"'


def experiment(**run: int) -> Experiment:
    return Experiment(**{**TREE, "rounds": 5, "run": run})


def test_the_page_is_written_every_so_many_rounds_and_reloads_itself_until_the_end(
    tmp_path: Path,
) -> None:
    given = experiment(report_every=2)
    folder = RunFolder.create(tmp_path, "live", given.to_yaml(), {})
    shown: list[str] = []

    def page() -> str:
        return folder.report_path.read_text("utf-8") if folder.report_path.exists() else ""

    for one in recorded(simulate(given), folder):
        if one.round % 2 == 0:
            text = f"after {one.round} of 5 rounds"
            until(lambda text=text: text in page(), page)
        shown.append(page())
    assert shown[0] == ""
    assert [REFRESH in one for one in shown[1:]] == [True] * 4
    assert (shown[1], shown[3]) == (shown[2], shown[4])
    final = page()
    assert REFRESH not in final
    assert "5 of 5" in final
    assert [one.name for one in folder.path.glob(".*")] == []  # written aside, and renamed


def test_a_page_that_was_shown_says_that_its_run_was_left(tmp_path: Path) -> None:
    given = experiment(report_every=1)
    folder = RunFolder.create(tmp_path, "live", given.to_yaml(), {})
    rounds = recorded(simulate(given), folder)
    next(rounds)
    rounds.close()
    page = folder.report_path.read_text("utf-8")
    assert REFRESH not in page
    assert "its caller left the loop after round 1" in page


def test_only_the_page_in_the_folder_reloads_itself(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "live", experiment().to_yaml(), {})
    with folder.lock():
        for path in (folder.report_path, tmp_path / "copy.html"):
            write_report([folder], path)
    assert REFRESH in folder.report_path.read_text("utf-8")
    assert REFRESH not in (tmp_path / "copy.html").read_text("utf-8")


def test_by_default_a_page_takes_at_most_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, written = [0.0], list[float]()
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])

    def write() -> None:
        written.append(now[0])
        now[0] += 0.5

    page = LivePage(write)
    for round in range(1, 31):
        now[0] += 10.0
        page.show(round)
        page.wait()
    assert written == [20.0, 70.5, 121.0, 171.5, 222.0, 272.5]


def test_by_default_there_is_no_page_before_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = [0.0], list[int]()
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    page = LivePage(lambda: written.append(int(now[0])))
    for round in (1, 2):
        now[0] += 1000.0
        page.show(round)
        page.wait()
    assert written == [2000]


def test_the_run_does_not_wait_for_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    now, go_on, written = [0.0], Event(), list[float]()
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])

    def write() -> None:
        written.append(now[0])
        go_on.wait()

    with LivePage(write) as page:
        for round in (2, 3, 4):
            now[0] += 100.0
            page.show(round)
        go_on.set()
    assert written == [100.0]


def test_a_page_is_drawn_by_another_process(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "live", experiment().to_yaml(), {})
    write_elsewhere(folder.path)
    assert folder.name in folder.report_path.read_text("utf-8")
    with pytest.raises(RunError, match="no such folder"):
        write_elsewhere(tmp_path / "gone")


def test_a_page_that_cannot_be_written_ends_no_run(caplog: pytest.LogCaptureFixture) -> None:
    def write() -> None:
        raise OSError("no space left")

    page = LivePage(write, every=1)
    for round in (1, 2):  # it is told at once, and not again
        page.show(round)
        page.wait()
        assert [one.getMessage().count("no space left") for one in caplog.records] == [1]
