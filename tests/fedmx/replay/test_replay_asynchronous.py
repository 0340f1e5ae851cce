"""Rounds that do not wait are replayed and compared, with several tasks of a client in a round."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder
from fedmx.history import RecordedRun, diff, pack, replay, verify
from fedmx.history.diff import step_of
from fedmx.history.divergence import RoundRecords, other_bits
from fedmx.history.replay import SERIAL
from fedmx.run import RunError
from tests.fedmx.command_line import fedmx
from tests.fedmx.recorded_runs import run_of

TIERS = [
    {"share": 1, "samples_per_s": 20, "up_bytes_per_s": 1e5, "down_bytes_per_s": 1e5},
    {"share": 1, "samples_per_s": 400, "up_bytes_per_s": 1e6, "down_bytes_per_s": 1e6},
]


def an_asynchronous_run(folder: Path, rate: float = 0.1, **train: Any) -> RunFolder:
    train = {"epochs": 1, "batch_size": 20, "learning_rate": rate, **train}
    compute = {"model": "logistic", "data": "digits", "normalise": {"scale": 16}, "train": train}
    preset = {"name": "fedbuff", "concurrency": 6, "buffer": 5}
    logic = {"preset": preset, "hooks": [{"name": "top-k", "p": 0.2}]}
    clock = {"devices": {"name": "tiers", "tiers": TIERS}, "dropout": 0.1}
    return run_of(folder, seed=3, rounds=8, clients=12, compute=compute, logic=logic, clock=clock)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run in which a client had two accepted updates in one round."""
    return an_asynchronous_run(tmp_path_factory.mktemp("asynchronous"))


def twice(run: RunFolder) -> tuple[int, int]:
    """Return a round, and a client with two accepted updates in it."""
    counts = Counter(
        (row["round"], row["client"]) for row in run.clients() if row["status"] == "accepted"
    )
    return next(one for one, number in counts.items() if number > 1)


def test_every_update_of_a_replayed_round_counts(run: RunFolder) -> None:
    rounds = replay(run).rounds
    assert all(one.same for one in rounds)
    assert [one.updates for one in rounds] == [5] * 8
    assert replay(run, twice(run)[0]).same


def test_a_client_has_a_part_for_each_of_its_tasks(run: RunFolder) -> None:
    round, client = twice(run)
    rows = [row for row in run.clients(round) if row["client"] == client]
    report = replay(run, round, client)
    assert report.same
    assert [part.version for part in report.parts] == [row["version"] for row in rows]
    assert [part.record for part in report.parts] == rows
    assert {part.same for part in report.parts if part.record["status"] == "accepted"} == {True}


def test_the_command_shows_each_task_with_its_version(run: RunFolder) -> None:
    round, client = twice(run)
    rows = [row for row in run.clients(round) if row["client"] == client]
    words = ("replay", run.path, "--round", round, "--client", client)
    said = fedmx(*words, cwd=run.path.parent)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    heads = [line for line in lines if line.startswith("task of version")]
    for head, row in zip(heads, rows, strict=True):
        assert f"version {row['version']}" in head
        for digest in row["update_blake3"]:
            assert f"the recorded update, bit for bit: BLAKE3 {digest[:16]}" in lines
    found = json.loads(fedmx(*words, "--json", cwd=run.path.parent).out)
    assert [part["version"] for part in found["parts"]] == [row["version"] for row in rows]
    assert [part["update_blake3"] for part in found["parts"]] == [
        row["update_blake3"] for row in rows
    ]


def test_a_task_in_flight_has_the_steps_of_the_round(run: RunFolder) -> None:
    row = next(row for row in run.clients() if row["status"] == "in-flight")
    part = replay(run, row["round"], row["client"]).parts[-1]
    assert (part.fate.status, part.version) == ("in-flight", row["version"])
    assert {one.end for one in part.steps} == {"server"}
    rows = [one for one in run.clients() if one["client"] == row["client"]]
    later = next(one for one in rows if one["round"] > row["round"])
    part = replay(run, later["round"], later["client"]).parts[0]
    assert part.steps[0].end == "client"


def test_a_client_without_a_task_in_the_round_has_no_part(run: RunFolder) -> None:
    number, clients = next(
        (round, clients)
        for round in range(1, 9)
        if len(clients := {row["client"] for row in run.clients(round)}) < 12
    )
    absent = next(one for one in range(12) if one not in clients)
    listed = ", ".join(map(str, sorted(clients)))
    with pytest.raises(RunError, match=f"round {number}; its clients are {listed}"):
        replay(run, number, absent)


def test_the_step_that_differs_may_be_of_a_later_task(run: RunFolder, tmp_path: Path) -> None:
    """A rate that changes with a version leaves the tasks of earlier versions as they are."""
    tasks: dict[tuple[int, int], list[int]] = {}
    for row in run.clients():
        tasks.setdefault((row["round"], row["client"]), []).append(row["version"])
    (round, client), versions = next(one for one in tasks.items() if one[1][0] < one[1][-1])
    schedule = {"name": "step", "every": versions[-1], "gamma": 0.5}
    other = an_asynchronous_run(tmp_path, schedule=schedule)
    opened = [RecordedRun.open(one, overrides=SERIAL) for one in (run, other)]
    step = step_of(opened[0], opened[1], round, client)
    assert (step.step, step.version) == ("task", versions[-1])
    assert "learning rate" in str(step.other)


def test_runs_part_where_any_update_of_a_client_differs(run: RunFolder, tmp_path: Path) -> None:
    assert diff(run, run).same
    assert not diff(run, an_asynchronous_run(tmp_path, rate=0.11)).same
    number, client = twice(run)
    record = next(one for one in run.rounds() if one["round"] == number)
    rows = list(run.clients(number))
    here = RoundRecords.of(record, rows)
    assert other_bits(number, here, RoundRecords.of(record, rows)) is None
    accepted = max(
        place
        for place, row in enumerate(rows)
        if row["client"] == client and row["status"] == "accepted"
    )
    rows[accepted] = {**rows[accepted], "update_blake3": ["another"]}
    found = other_bits(number, here, RoundRecords.of(record, rows))
    assert (found.what, found.clients) == ("update", (client,))


def test_a_pack_of_it_is_verified(run: RunFolder, tmp_path: Path) -> None:
    pack(run, tmp_path / "run.fedmx")
    assert verify(tmp_path / "run.fedmx").same
