"""A report of rounds that do not wait: staleness, tasks of several versions, and each task once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder
from fedmx.report.participation import STATUSES
from fedmx.report.staleness import MAX_BARS, quantile, staleness_section
from fedmx.report.summary import RunSummary
from fedmx.report.tasks import LEAST_VERSIONS, MOST_VERSIONS
from fedmx.report.timeline import draw_timeline, timeline_of
from tests.fedmx.recorded_runs import run_of

pytestmark = pytest.mark.usefixtures("no_curves")

TIERS = [
    {"share": 1, "samples_per_s": 2, "up_bytes_per_s": 1e4, "down_bytes_per_s": 1e5},
    {"share": 3, "samples_per_s": 10, "up_bytes_per_s": 5e4, "down_bytes_per_s": 5e5},
    {"share": 1, "samples_per_s": 90, "up_bytes_per_s": 5e5, "down_bytes_per_s": 5e6},
]
ROUNDS = 16


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with lost clients, and with some that are asked again in the same round."""
    folder = run_of(
        tmp_path_factory.mktemp("asynchronous"),
        seed=3,
        rounds=ROUNDS,
        clients=12,
        logic={"preset": {"name": "fedbuff", "concurrency": 6, "buffer": 5}},
        clock={"devices": {"name": "tiers", "tiers": TIERS}, "dropout": 0.1},
    )
    assert max(Counter((row["round"], row["client"]) for row in folder.clients()).values()) > 1
    assert any(row["status"] == "lost" for row in folder.clients())
    return folder


def tasks_of(run: RunFolder) -> list[tuple[int, float, float | None]]:
    """Return client, beginning and end of each task of a run, in seconds since it began."""
    begins: dict[int, float] = {
        one["round"]: one["clock_elapsed_s"] - one["clock_s"] for one in run.rounds()
    }
    tasks = []
    in_flight: dict[int, Mapping[str, Any]] = {}
    for row in run.clients():
        in_flight.pop(row["client"], None)
        if row["status"] == "in-flight":
            in_flight[row["client"]] = row
        else:
            tasks.append(row)
    return [
        (
            row["client"],
            begins[row["round"]] + row["asked_s"],
            None if row["ended_s"] is None else begins[row["round"]] + row["ended_s"],
        )
        for row in [*tasks, *in_flight.values()]
    ]


def test_every_task_has_its_own_times(run: RunFolder) -> None:
    tasks = sorted(tasks_of(run), key=lambda task: task[:2])
    assert len(tasks) == sum(one["tasks"] for one in run.rounds())
    for (client, _, end_s), (other, begin_s, _) in pairwise(tasks):
        if client == other:
            assert end_s is not None
            assert begin_s >= end_s - 1e-9
    assert all(row["ended_s"] is not None for row in run.clients() if row["status"] != "in-flight")


def test_a_task_in_flight_has_a_record_in_the_round_that_sent_it_only(run: RunFolder) -> None:
    sent = [row for row in run.clients() if row["status"] == "in-flight"]
    assert len(sent) > ROUNDS
    assert all(row["asked_s"] >= 0 for row in sent)


@pytest.mark.parametrize("round", [1, 2, 7, 12, ROUNDS])
def test_a_timeline_has_each_task_once_with_its_times(run: RunFolder, round: int) -> None:
    found = timeline_of(RunSummary.of(run), round)
    assert found.first is not None
    assert min(round, LEAST_VERSIONS) <= round - found.first + 1 <= MOST_VERSIONS
    records = {one["round"]: one for one in run.rounds()}
    start_s = records[found.first]["clock_elapsed_s"] - records[found.first]["clock_s"]
    until_s = records[round]["clock_elapsed_s"]
    expected = sorted(
        (client, max(begin_s - start_s, 0.0), min(until_s, end_s or until_s) - start_s)
        for client, begin_s, end_s in tasks_of(run)
        if begin_s < until_s - 1e-9 and (end_s is None or end_s >= start_s)
    )
    drawn = sorted(
        (row.client, row.segments[0].begin_s, row.end_s) for row in found.rows if row.segments
    )
    lasting = [one for one in expected if one[2] > one[1] + 1e-6]
    assert [one[0] for one in drawn] == [one[0] for one in lasting]
    for one, other in zip(drawn, lasting, strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=1e-6)
    assert found.ends_s[-1] == pytest.approx(until_s - start_s)
    assert len(found.ends_s) == round - found.first + 1
    assert draw_timeline(found).count("<svg") == 1


def test_an_arrival_of_the_round_is_drawn_where_it_came(run: RunFolder) -> None:
    found = timeline_of(RunSummary.of(run), ROUNDS)
    begin_s = found.ends_s[-2]
    came = [row for row in found.rows if row.status == "accepted" and row.end_s > begin_s + 1e-9]
    accepted = [
        row for row in run.clients(ROUNDS) if row["status"] == "accepted" and row["ended_s"] > 1e-9
    ]
    assert sorted(row.client for row in came) == sorted(row["client"] for row in accepted)


def test_participation_counts_tasks_that_ended(run: RunFolder) -> None:
    records, clients = run.rounds(), RunSummary.of(run).participation.clients
    counts = {status: sum(one.times[status] for one in clients) for status in STATUSES}
    assert counts["accepted"] == sum(len(one["participants"]) for one in records)
    assert counts["lost"] == sum(one["lost"] for one in records) > 0
    assert counts["rejected"] == counts["declined"] == 0
    assert sum(one.failures for one in clients) == counts["lost"]
    assert sum(one.down_bytes for one in clients) == sum(one["down_bytes"] for one in records)


def test_the_figure_of_staleness_can_be_read_on_a_dark_page(run: RunFolder) -> None:
    section = staleness_section(RunSummary.of(run), "this one")
    assert section is not None
    for name in ("tasks in flight", "largest staleness", "mean staleness"):
        (drawn,) = re.findall(rf"<text [^>]*>{name}</text>", section)
        assert "var(--ink)" in drawn


def test_a_bar_stands_for_several_values_where_there_are_many(run: RunFolder) -> None:
    last = replace(RunSummary.of(run).points[-1], staleness=tuple(range(2 * MAX_BARS)))
    section = staleness_section(replace(RunSummary.of(run), points=(last,)), None)
    assert section.count("fill: var(--run-0)") == MAX_BARS


def test_rounds_that_wait_have_no_staleness(tmp_path: Path) -> None:
    waiting = RunSummary.of(run_of(tmp_path, rounds=2))
    assert waiting.waits
    assert staleness_section(waiting, None) is None


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 3), (0.9, 9), (0.91, 10), (0.01, 0), (1.0, 10)]
)
def test_a_quantile_is_the_least_value_that_covers_its_share(share: float, expected: int) -> None:
    assert quantile([10, 0, 1, 1, 2, 3, 5, 7, 8, 9], share) == expected
