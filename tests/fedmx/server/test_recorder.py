"""What is written after a round: its records always, a checkpoint when one is due."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmx import RunFolder
from fedmx.errors import FedmxError
from fedmx.journal.journal import Journal
from fedmx.run.checkpoint import Keep
from fedmx.run.events import EventLog
from fedmx.server.evaluation import Evaluation
from fedmx.server.recorder import FolderRecorder
from fedmx.server.round import Round
from fedmx.server.step_back import StepBack
from layers.logic import Overhead, RoundReport, Traffic
from layers.logic.core.report import ClientReport, Times


class Kept:
    """A folder and an event log that keep what they are told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def rounds(self) -> list[dict[str, Any]]:
        return []

    def append_journal(self, record) -> None:
        self.told.append(("journal", record["round"]))

    def append_round(self, line) -> None:
        self.told.append(("round", line["round"]))

    def append_clients(self, lines) -> None:
        self.told.append(("clients", [line["client"] for line in lines]))

    def add_round(self, line, numbers) -> None:
        self.told.append(("events", line["round"], dict(numbers)))

    def save_checkpoint(self, round, state, keep) -> None:
        self.told.append(("checkpoint", round, dict(state), keep))


def a_round(number: int) -> Round:
    clients = (ClientReport(4, "accepted", samples=1), ClientReport(2, "lost", "gone"))
    report = RoundReport(number, 0.1, 2, clients, Traffic(), numbers={"epsilon": 0.5})
    return Round(report, Evaluation(), seconds=1.0, elapsed_s=1.0, journal=Journal(number))


@pytest.mark.parametrize(
    ("every", "last", "due"),
    [(1, 4, [1, 2, 3, 4]), (2, 5, [2, 4, 5]), (3, 5, [3, 5]), (9, 5, [5]), (5, 5, [5])],
)
def test_a_checkpoint_is_written_every_so_many_rounds_and_after_the_last(every, last, due) -> None:
    kept: Any = Kept()
    recorder = FolderRecorder(kept, kept, last, every, Keep(3))
    for number in range(1, last + 1):
        recorder.record(a_round(number), {"at": number})
    written = [entry for entry in kept.told if entry[0] == "checkpoint"]
    assert written == [("checkpoint", number, {"at": number}, Keep(3)) for number in due]


RECORDED = ["accuracy", "loss", "round", "chain", "checksum", "stepped_back", "suspended"]


@pytest.mark.parametrize("name", RECORDED)
def test_a_hooks_number_does_not_vanish_behind_one_of_the_record(name) -> None:
    report = RoundReport(3, 0.1, 2, (), Traffic(), numbers={"epsilon": 0.5, name: 0.9})
    with pytest.raises(FedmxError, match=rf"^round 3: a hook records {name}, .*another name$"):
        Round(report, Evaluation({"accuracy": 0.1}), seconds=1.0, elapsed_s=1.0).record()


def test_the_checkpoint_is_never_ahead_of_the_records() -> None:
    kept: Any = Kept()
    FolderRecorder(kept, kept, 1).record(a_round(1), {"at": 1})
    assert kept.told == [
        ("journal", 1),
        ("round", 1),
        ("clients", [4, 2]),
        ("events", 1, {"epsilon": 0.5}),
        ("checkpoint", 1, {"at": 1}, Keep()),
    ]


def test_a_rounds_record_has_all_that_happened_and_only_that() -> None:
    bare = {
        "epsilon": 0.5,
        "round": 3,
        **dict.fromkeys(["accuracy", "loss", "train_loss"]),
        **dict.fromkeys(["client_accuracy_mean", "client_accuracy_variance"]),
        **{"participants": [4], "selected": 2, "updates": 1, "lost": 1, "rejected_connections": []},
        **dict.fromkeys(["tasks", "rejected", "declined", "local_steps"], 0),
        **dict.fromkeys(["up_bytes", "down_bytes", "control_bytes", "file_bytes"], 0),
        "seconds": 1.0,
        "elapsed_s": 1.0,
        "clock_s": 0.0,
        "clock_elapsed_s": 0.0,
        "virtual": False,
        "learning_rate": 0.1,
        "model_sha256": "",
    }
    assert a_round(3).record() == bare
    given = a_round(3)
    overhead = Overhead(operator=("paused",), other_versions=("client 1: fedmx 2",))
    told = {"numbers": {"mine": 4.0}, "suspended": {7: 2.5, 4: 1.0}, "in_flight": 2}
    more = replace(given.report, overhead=overhead, **told)
    measured = Evaluation({"rmse": 2.5}, measured={"gap": 0.25})
    step = StepBack(3, 2, "a broken model", (1, 2), (1,))
    full = replace(given, report=more, epsilon=1.5, stepped_back=(step,), evaluation=measured)
    assert full.record() == {
        **bare,
        "mine": 4.0,
        "gap": 0.25,
        "rmse": 2.5,
        "epsilon": 1.5,
        "stepped_back": [step.record()],
        "suspended": {"4": 1.0, "7": 2.5},
        "operator": ["paused"],
        "other_versions": ["client 1: fedmx 2"],
        "in_flight": 2,
        "staleness": [0],
    }
    assert list(full.record()["suspended"]) == ["4", "7"]


def test_the_records_of_clients_have_all_that_is_known_of_each() -> None:
    journal = Journal(3, updates={(4, 3): {1: "a0" * 32, 2: "b1" * 32}, (4, 2): {1: "c2" * 32}})
    clients = (
        ClientReport(
            4,
            "accepted",
            samples=10,
            steps=5,
            metrics={"norm": 1.5, "checksum": 7.0, "round": 9.0},
            traffic=Traffic(30, 20),
            times=Times(0.0, 1.0, 1.5, 2.0, 2.5),
            task_round=3,
            version=2,
            staleness=1,
            tasks=1,
            share=0.25,
            malicious=True,
        ),
        ClientReport(4, "accepted", task_round=2),
        ClientReport(4, "rejected", "no", "Traceback", task_round=3, share=0.0),
    )
    report = RoundReport(3, 0.1, 2, clients, Traffic(), others=(ClientReport(8, "not-selected"),))
    given = Round(report, Evaluation(), seconds=1.0, elapsed_s=1.0, journal=journal)
    numbers = dict.fromkeys(["samples", "steps", "up_bytes", "down_bytes"], 0)
    bare = {"round": 3, "client": 4, "status": "accepted", **numbers, "update_blake3": []}
    bare |= {"reason": "", "traceback": ""}
    assert given.client_records() == [
        {
            **bare,
            **{"norm": 1.5, "samples": 10, "steps": 5, "up_bytes": 20, "down_bytes": 30},
            "update_blake3": ["a0" * 32, "b1" * 32],
            **{"version": 2, "staleness": 1, "tasks": 1, "share": 0.25, "liar": True},
            **{"asked_s": 0.0, "trained_s": 1.0, "decided_s": 1.5, "sending_s": 2.0},
            "ended_s": 2.5,
        },
        {**bare, "update_blake3": ["c2" * 32]},
        {**bare, "status": "rejected", "reason": "no", "traceback": "Traceback", "share": 0.0},
        {**bare, "client": 8, "status": "not-selected"},
    ]
    assert given.update_blake3 == {4: ("a0" * 32, "b1" * 32, "c2" * 32)}
    assert (given.participants, given.updates) == ((4, 4), 3)
    assert given.staleness is None


def test_a_step_back_forgets_later_rounds_and_keeps_one_checkpoint_more(tmp_path: Path) -> None:
    undisturbed, run = (RunFolder.create(tmp_path, "a", "", {}) for _ in range(2))
    with EventLog(undisturbed.events_path) as events:
        recorder = FolderRecorder(undisturbed, events, 9)
        for number in (1, 2, 3, 4):
            recorder.record(a_round(number), {"at": number})
    with EventLog(run.events_path) as events:
        recorder = FolderRecorder(run, events, 9, 2, Keep(1))
        for number in (1, 2, 3):
            recorder.record(a_round(number), {"at": number})
        assert run.checkpoint_rounds == [2]
        recorder.step_back(3, {"at": 3, "again": True})
        assert run.checkpoint_rounds == [3, 2], "the one before may be needed next"
        kept, before = recorder.earlier(4), recorder.earlier(3)
        assert (kept, before) == ({"at": 3, "again": True}, {"at": 2})
        recorder.step_back(2, {"at": 2, "again": True})
        assert recorder.checkpoint_rounds == [2]
        assert recorder.earlier(2) is None
        assert [one["round"] for one in run.rounds()] == [1, 2]
        for number in (3, 4):
            recorder.record(replace(a_round(number), seconds=2.0), {"at": number})
    chains = [[one["chain"] for one in each.rounds()] for each in (undisturbed, run)]
    assert chains[0] == chains[1]
    assert [one["round"] for one in run.journal()] == [1, 2, 3, 4]
    seen = EventAccumulator(str(run.events_path))
    seen.Reload()
    told = [(one.step, one.value) for one in seen.Scalars("seconds")]
    assert told == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]
