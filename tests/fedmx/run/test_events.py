"""TensorBoard reads what a run wrote, before and after it was resumed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmx.run import RunError
from fedmx.run.events import EventLog

ROOT = Path(__file__).resolve().parents[3]


def record(number: int, accuracy: float | None) -> dict[str, object]:
    clients = {"participants": [3, 1, 4], "rejected": []}
    cost = {"up_bytes": 1000 * number, "down_bytes": 2000, "seconds": 1.5}
    return {"round": number, "accuracy": accuracy, "loss": 2.0 / number, **clients, **cost}


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def test_tensorboard_reads_every_number_of_a_round(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.add_round(record(1, 0.5), {"epsilon": 0.25, "loss": 7.0})
        log.add_round(record(2, None))
    for tag, values in {
        "accuracy": [0.5],
        "loss": [2.0, 1.0],
        "bytes/up": [1000.0, 2000.0],
        "bytes/down": [2000.0, 2000.0],
        "seconds": [1.5, 1.5],
        "clients/participants": [3.0, 3.0],
        "clients/rejected": [0.0, 0.0],
        "hooks/epsilon": [0.25],
    }.items():
        assert scalars(tmp_path, tag) == list(enumerate(values, start=1)), tag


@pytest.mark.parametrize("cut_bytes", [0, 7, 30])
def test_a_resumed_run_goes_on_where_its_checkpoint_was(tmp_path: Path, cut_bytes: int) -> None:
    with EventLog(tmp_path) as log:
        for number in range(1, 6):
            log.add_round(record(number, 0.5))
    content = log.path.read_bytes()
    log.path.write_bytes(content[: len(content) - cut_bytes])
    with EventLog(tmp_path, after_round=3) as again:
        for number in range(4, 8):
            again.add_round(record(number, 0.25))
    expected = [(n, 0.5) for n in (1, 2, 3)] + [(n, 0.25) for n in (4, 5, 6, 7)]
    assert scalars(tmp_path, "accuracy") == expected


def test_files_are_read_in_the_order_they_were_written_whatever_the_clock(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.9999999999.laptop.17.0").write_bytes(b"")
    names = []
    for number in range(1, 13):
        with EventLog(tmp_path, after_round=number - 1) as log:
            log.add_round(record(number, 0.5))
            names.append(log.path.name)
    assert names == sorted(names)
    assert scalars(tmp_path, "accuracy") == [(number, 0.5) for number in range(1, 13)]


def test_a_folder_that_cannot_be_written_is_an_error_in_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write events"):
        EventLog(tmp_path / "file")


def test_a_full_disk_is_an_error_in_the_caller_too(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log, open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), log._file.fileno())
        said = rf"{log.path.name}: cannot write events \(No space left on device\)"
        with pytest.raises(RunError, match=said):
            log.add_round(record(1, 0.5))
