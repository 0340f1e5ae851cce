"""A report shows when each client of a round trained, waited and sent."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes

from fedmx import RunFolder
from fedmx.quantities import OF_CLASSES
from fedmx.report import write_report
from fedmx.report.curves import AXES, draw, has_values, measures_of
from fedmx.report.groups import Group, comparison
from fedmx.report.summary import Curve, RunSummary
from fedmx.report.timeline import MAX_ROWS, Timeline, draw_timeline, timeline_of
from fedmx.run import RunError
from tests.fedmx.command_line import fedmx

MEASURES = measures_of([Curve(metrics=OF_CLASSES)])

pytestmark = pytest.mark.usefixtures("no_curves")

EXPERIMENT = "name: clocked\nrounds: 5\nclients: 4\nclock: {deadline_s: 100}\n"


def record(number: int, clock_s: float | None, virtual: bool = True, **more: Any) -> dict[str, Any]:
    clock = {} if clock_s is None else {"clock_s": clock_s, "virtual": virtual}
    times = {"seconds": 2.0, "elapsed_s": 2.0 * number, **clock}
    return {"round": number, "accuracy": number / 10, "loss": 1.0, **times, **more}


def client(number: int, status: str, *moments: float | None, round: int = 1) -> dict[str, Any]:
    """Moments: asked, trained, decided, sending, ended."""
    keys = ("asked_s", "trained_s", "decided_s", "sending_s", "ended_s")
    times = dict(zip(keys, moments, strict=True)) if moments else {}
    return {"round": round, "client": number, "status": status, **times}


def make(
    parent: Path,
    rounds: list[dict[str, Any]],
    clients: list[dict[str, Any]] | None = None,
    experiment: str = EXPERIMENT,
) -> RunFolder:
    run = RunFolder.create(parent, "clocked", experiment, {"mode": "simulation"})
    for one in rounds:
        run.append_round(one)
    run.append_clients(clients or [])
    return run


def page_of(*runs: RunFolder, round: int | None = None, target: float | None = None) -> str:
    path = runs[0].path / "report.html"
    write_report(runs, path, target, round)
    return path.read_text(encoding="utf-8")


def timeline(run: RunFolder, round: int | None = None) -> Timeline:
    found = timeline_of(RunSummary.of(run), round)
    assert found is not None
    return found


def test_all_machine_times_of_a_page_are_one_measurement(tmp_path: Path, curves: None) -> None:
    run = make(tmp_path, [record(n, 1.5, virtual=False) for n in (1, 2, 3)])
    summary = RunSummary.of(run)
    rows = dict(comparison([summary], 0.2))
    assert (rows["Machine time"], rows["To 20 %: machine time"]) == (["6.00 s"], ["4.00 s"])
    assert [point.time_s for point in summary.points] == [2.0, 4.0, 6.0]
    page = page_of(run, target=0.2).replace("\u00a0", " ")
    for part in ("with evaluation", "machine time, s", "4.00 s of machine time"):
        assert part in page


def test_time_to_a_target_is_by_the_clock_of_the_run(tmp_path: Path) -> None:
    runs = [
        make(tmp_path, [record(n, 100.0) for n in (1, 2, 3)]),
        make(tmp_path, [record(n, 1.5, virtual=False) for n in (1, 2, 3)]),
        make(tmp_path, [record(n, None) for n in (1, 2, 3)]),
    ]
    rows = dict(comparison([RunSummary.of(run) for run in runs], 0.2))
    assert rows["Machine time"] == ["6.00 s"] * 3
    assert rows["Virtual time"] == ["5 min 0 s", "–", "–"]
    assert rows["To 20 %: virtual time"] == ["3 min 20 s", "–", "–"]
    assert rows["To 20 %: machine time"] == ["–", "4.00 s", "4.00 s"]
    assert "To 20 %: machine time" not in dict(comparison([RunSummary.of(runs[0])], 0.2))
    assert "3 min 20 s of virtual time" in page_of(runs[0], target=0.2).replace("\u00a0", " ")


def test_a_resumed_run_keeps_the_time_of_its_clock(tmp_path: Path) -> None:
    run = make(tmp_path, [record(n, 10.0, clock_elapsed_s=100.0 + 10 * n) for n in (1, 2)])
    assert [point.clock_elapsed_s for point in RunSummary.of(run).points] == [110.0, 120.0]


def test_a_clock_that_some_rounds_lack_gives_no_duration(tmp_path: Path) -> None:
    summary = RunSummary.of(make(tmp_path, [record(1, None), record(2, 10.0)]))
    assert [point.time_s for point in summary.points] == [2.0, 4.0]
    assert summary.virtual_s is None


def test_real_and_virtual_time_are_never_on_one_axis(tmp_path: Path) -> None:
    rounds = [record(n, 1.5, virtual=False, local_steps=20 * n) for n in (1, 2)]
    real = RunSummary.of(make(tmp_path, rounds))
    assert [point.local_steps for point in real.points] == [20, 60]
    virtual = RunSummary.of(make(tmp_path, [record(n, 100.0) for n in (1, 2)]))
    drawn: dict[str, set[str]] = {}
    for axis in AXES:
        groups = [Group.alone(run, run.folder.name) for run in (real, virtual)]
        figure = draw(groups, MEASURES[0], axis)
        drawn[axis.name] = set(re.findall(r"stroke: var\(--run-(\d)\)", figure))
    both = {"0", "1"}
    assert drawn == {
        **{"rounds": both, "bytes": both},
        **{"machine time": {"0"}, "virtual time": {"1"}, "local steps": {"0"}},
    }
    assert not has_values([Group.alone(real, "real")], MEASURES[0], AXES[3])


@pytest.mark.parametrize(
    ("client_of", "expected"),
    [
        # Virtual time, serial uploads: all events are recorded.
        (("accepted", 0, 10, None, 14, 20), "train 0 10, channel 10 14, send 14 20"),
        (("accepted", 5, 10, 12, 14, 20), "train 5 10, verdict 10 12, channel 12 14, send 14 20"),
        (("declined", 0, 10, 12, None, 12), "train 0 10, verdict 10 12"),
        # Declined or lost before the end of training.
        (("declined", 0, None, 12, None, 12), "train 0 12"),
        (("lost", 0, None, None, None, 7), "train 0 7"),
        # The round ended without its update.
        (("lost", 0, 10, None, None, None), "train 0 10, channel 10 30"),
        (("lost", 0, 10, 12, None, None), "train 0 10, verdict 10 12, channel 12 30"),
    ],
)
def test_a_bar_shows_the_activities_of_a_client(
    tmp_path: Path, client_of: tuple[Any, ...], expected: str
) -> None:
    row = timeline(make(tmp_path, [record(1, 30.0)], [client(1, *client_of)])).rows[0]
    assert ", ".join(f"{kind} {at:g} {end:g}" for kind, at, end in row.segments) == expected
    assert f"{row.end_s:g}" == expected.split()[-1]


def test_activities_that_a_server_cannot_distinguish_are_one_segment(tmp_path: Path) -> None:
    clients = [client(1, "accepted", 0, None, None, None, 20), client(2, "lost", 0, *[None] * 4)]
    run = make(tmp_path, [record(1, 30.0, virtual=False)], clients)
    rows = timeline(run, 1).rows
    assert [[tuple(part) for part in row.segments] for row in rows] == [
        [("work", 0, 20)],
        [("work", 0, 30)],
    ]
    assert "not recorded separately" in page_of(run, round=1)
    # An offer marks the end of training; the clients were lost after the verdict, or before it.
    clients = [
        client(1, "accepted", 0, 10, 11, None, 20),
        client(2, "lost", 0, 10, 11, None, 20),
        client(3, "lost", 0, 10, None, None, 20),
        client(4, "lost", 0, None, None, None, 20),
        client(5, "in-flight", 0, 10, None, None, None),
    ]
    run = make(tmp_path, [record(1, 30.0, virtual=False)], clients)
    assert [[part.kind for part in row.segments] for row in timeline(run, 1).rows] == [
        ["train", "verdict", "send"],
        ["train", "verdict", "send"],
        ["train", "verdict"],
        ["train"],
        ["train", "work"],
    ]


def test_times_of_one_machine_are_not_shown_as_times_of_devices(tmp_path: Path) -> None:
    clients = [client(1, "accepted", 0, 10, None, None, 11)]
    said = "times of the machine that simulated all clients"
    run = make(tmp_path, [record(1, 11.0, virtual=False)], clients)
    assert "Timeline" not in page_of(run), "they are not times of clients"
    page = page_of(run, round=1)
    assert said in page, "it is drawn on request"
    assert "deadline, 1 min" not in page, "a simulation without devices has no deadline"
    run.facts["mode"] = "server"
    page = page_of(run)
    assert said not in page
    assert "deadline, 1 min" in page
    assert said not in page_of(make(tmp_path, [record(1, 11.0)], clients))


@pytest.mark.parametrize(("deadline_s", "place"), [(100, 100.0), (600, 10.0), (7200, 120.0)])
def test_the_line_of_the_deadline_is_in_the_unit_of_the_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadline_s: int, place: float
) -> None:
    drawn: list[float] = []
    monkeypatch.setattr(Axes, "axvline", lambda axes, x, **style: drawn.append(x))
    clients = [client(0, "accepted", 0, 0.5 * deadline_s, None, None, 0.9 * deadline_s)]
    given = EXPERIMENT.replace("100", str(deadline_s))
    page_of(make(tmp_path, [record(1, 0.9 * deadline_s)], clients, given))
    assert place in drawn


@pytest.mark.parametrize(("times", "unit"), [(60, "min"), (3600, "h")])
def test_a_longer_round_is_the_same_drawing_in_a_longer_unit(
    tmp_path: Path, times: int, unit: str
) -> None:
    def drawn(times: int) -> str:
        moments = [0, 30 * times, 40 * times, 50 * times, 90 * times]
        clients = [client(n, status, *moments) for n, status in enumerate(("accepted", "lost"))]
        run = make(tmp_path / str(times), [record(1, 100.0 * times)], clients)
        ends_s = (70 * times, 100 * times)
        figure = draw_timeline(replace(timeline(run), deadline_s=120.0 * times, ends_s=ends_s))
        return re.sub(r'id="[^"]*"|#[\w-]+', "", figure)

    assert drawn(times) == drawn(1).replace("in the round, s", f"in the round, {unit}")


def test_each_status_has_a_mark_and_the_deadline_a_line(tmp_path: Path) -> None:
    statuses = ("accepted", "declined", "rejected", "lost")
    clients = [client(n, status, 0, 10, 11, 12, 90) for n, status in enumerate(statuses)]
    page = page_of(make(tmp_path, [record(1, 90.0)], clients))
    for said in (*statuses, "dashed: deadline, 1 min 40 s", "4 clients in the order of the plan"):
        assert said in page


def test_rows_are_in_the_order_of_the_plan_and_sampled_from_each_status(tmp_path: Path) -> None:
    clients = [client(n, "accepted", 0, 1, None, 2, 3) for n in range(500, 200, -1)]
    clients += [client(n, "lost", 0, None, None, None, 3) for n in range(5)]
    clients += [client(900, "declined"), client(901, "rejected")]
    found = timeline(make(tmp_path, [record(1, 30.0)], clients))
    assert len(found.rows) == MAX_ROWS
    assert found.more == 305 - MAX_ROWS
    assert [row.client for row in found.rows] == [*range(500, 445, -1), *range(5)]
    assert found.without_task == 1  # 901 is not in the plan
    assert draw_timeline(found).count("<svg") == 1
    said = "1 client of the plan was given no task"
    assert said in page_of(make(tmp_path / "one", [record(1, 30.0)], clients))
    clients += [client(902, "declined")]
    said = "2 clients of the plan were given no task"
    assert said in page_of(make(tmp_path / "two", [record(1, 30.0)], clients))


def test_the_default_round_has_the_median_duration(tmp_path: Path) -> None:
    durations = [9.0, 1.0, 5.0, 5.0, 2.0]
    rounds = [record(n, took) for n, took in enumerate(durations, start=1)]
    clients = [client(n, "accepted", 0, 1, None, 2, 3, round=n) for n in range(1, 6)]
    run = make(tmp_path, rounds, clients)
    assert (timeline(run).round, timeline(run, 2).round) == (4, 2)
    assert "Timeline of round 4" in page_of(run)
    assert "Timeline of round 2" in page_of(run, round=2)
    many = [run, *(make(tmp_path, rounds[:1], clients[:1]) for _ in range(12))]
    for runs in (many[:2], many):
        assert page_of(*runs, round=2).count("<h2>Timeline of round 2 of ") == 1
    assert "Timeline" not in page_of(*many)


def test_a_missing_round_is_a_one_line_error(tmp_path: Path) -> None:
    run = make(tmp_path, [record(1, 9.0)], [client(1, "accepted", 0, 1, None, 2, 3)])
    with pytest.raises(RunError, match=r"round 7\b.* has 1\b"):
        page_of(run, round=7)
    old = make(tmp_path, [record(1, None)], [client(1, "accepted")])
    with pytest.raises(RunError, match=r"no times\b.*round 1\b"):
        page_of(old, round=1)
    assert "Timeline" not in page_of(old)


def test_a_user_chooses_the_round_by_its_number(tmp_path: Path) -> None:
    clients = [client(1, "accepted", 0, 1, None, 2, 3, round=n) for n in (1, 2)]
    run = make(tmp_path, [record(1, 9.0), record(2, 9.0)], clients)
    assert fedmx("report", run.path, "--round", "1", cwd=tmp_path).code == 0
    assert "Timeline of round 1" in run.report_path.read_text(encoding="utf-8")
    assert "no round 3" in fedmx("report", run.path, "--round", "3", cwd=tmp_path).error_text


def test_a_failed_round_shows_its_progress(tmp_path: Path) -> None:
    clients = [client(1, "lost", 0, 4, None, None, 9, round=2)]
    run = make(tmp_path, [record(1, 9.0)], clients)
    assert "The round failed." in page_of(run, round=2)
    assert timeline(run, 2).rows[0].end_s == 9


moment = st.none() | st.floats() | st.integers(-5, 50) | st.text(max_size=2)
someone = st.fixed_dictionaries(
    {"round": st.just(1), "client": st.integers(0, 3) | st.text(max_size=2)},
    optional={
        "status": st.sampled_from(["accepted", "declined", "lost", "rejected", "$x^"]),
        **dict.fromkeys(("asked_s", "trained_s", "decided_s", "sending_s", "ended_s"), moment),
    },
)


@pytest.mark.filterwarnings("error")
@settings(deadline=None, max_examples=12)
@given(clients=st.lists(someone, max_size=4), clock_s=moment)
def test_bars_never_overlap_for_any_times(
    tmp_path_factory: pytest.TempPathFactory, clients: list[dict[str, Any]], clock_s: Any
) -> None:
    run = make(tmp_path_factory.mktemp("any"), [record(1, clock_s)], clients)
    found = timeline_of(RunSummary.of(run))
    for row in found.rows if found else ():
        ends = [0.0, *(t for part in row.segments for t in (part.begin_s, part.end_s)), row.end_s]
        assert ends == sorted(ends)
    assert "</html>" in page_of(run)
