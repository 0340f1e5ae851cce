"""Rounds that do not wait are replayed and compared, with several tasks of a client in a round."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fedmx import RunFolder
from fedmx.history import diff, pack, replay, verify
from fedmx.history.divergence import RoundRecords, other_bits
from tests.fedmx.recorded_runs import run_of

TIERS = [
    {"share": 1, "samples_per_s": 20, "up_bytes_per_s": 1e5, "down_bytes_per_s": 1e5},
    {"share": 1, "samples_per_s": 400, "up_bytes_per_s": 1e6, "down_bytes_per_s": 1e6},
]


def an_asynchronous_run(folder: Path, rate: float = 0.1) -> RunFolder:
    return run_of(
        folder,
        seed=3,
        rounds=8,
        clients=12,
        compute={
            "model": "logistic",
            "data": "digits",
            "normalise": {"scale": 16},
            "train": {"epochs": 1, "batch_size": 20, "learning_rate": rate},
        },
        logic={
            "preset": {"name": "fedbuff", "concurrency": 6, "buffer": 5},
            "hooks": [{"name": "top-k", "p": 0.2}],
        },
        clock={"devices": {"name": "tiers", "tiers": TIERS}, "dropout": 0.1},
    )


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


def test_the_part_of_a_client_is_the_task_that_ended_first(run: RunFolder) -> None:
    rows = [row for row in run.clients() if row["status"] == "accepted"]
    fresh = next(row for row in rows if row["tasks"] and row["round"] > 1)
    stale = next(row for row in rows if row["staleness"] > 1)
    for round, client in (
        twice(run),
        (fresh["round"], fresh["client"]),
        (stale["round"], stale["client"]),
    ):
        part = replay(run, round, client).part
        assert part is not None
        assert part.same, (round, client)
        assert part.fate is not None
        assert part.fate.status == "accepted"


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
    rows[accepted] = {**rows[accepted], "update_sha256": ["another"]}
    found = other_bits(number, here, RoundRecords.of(record, rows))
    assert found is not None
    assert (found.what, found.clients) == ("update", (client,))


def test_a_pack_of_it_is_verified(run: RunFolder, tmp_path: Path) -> None:
    pack(run, tmp_path / "run.fedmx")
    assert verify(tmp_path / "run.fedmx").same
