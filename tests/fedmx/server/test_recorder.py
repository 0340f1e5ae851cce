"""What is written after a round: its records always, a checkpoint when one is due."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmx import RunFolder
from fedmx.errors import FedmxError
from fedmx.run.checkpoint import Keep
from fedmx.run.events import EventLog
from fedmx.server.recorder import FolderRecorder
from fedmx.server.round import Round
from layers.logic import RoundReport, Traffic
from tests.fedmx.golden.objects import a_round


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
        Round(report, accuracy=0.1, loss=None, seconds=1.0, elapsed_s=1.0).record()


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
