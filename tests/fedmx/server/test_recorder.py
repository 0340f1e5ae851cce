"""What is written after a round: its records always, a checkpoint when one is due."""

from __future__ import annotations

from typing import Any

import pytest

from fedmx.errors import FedmxError
from fedmx.journal.journal import Journal
from fedmx.run.checkpoint import Keep
from fedmx.server.recorder import FolderRecorder
from fedmx.server.round import Round
from layers.logic import RoundReport, Traffic
from layers.logic.core.report import ClientReport


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
    return Round(report, None, None, seconds=1.0, elapsed_s=1.0, journal=Journal(number))


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


@pytest.mark.parametrize(
    "name", ["accuracy", "loss", "round", "chain", "checksum", "stepped_back", "suspended"]
)
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
