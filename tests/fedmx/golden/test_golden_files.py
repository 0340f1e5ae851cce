"""What an earlier fedmx wrote to disk and to the wire is read today, and is written the same."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx.client.participant import ClientMemory
from fedmx.federation.messages import CODEC as FEDERATION_CODEC
from fedmx.journal.journal import Journal
from fedmx.protocol.messages import CODEC
from fedmx.run import RunFolder
from fedmx.run.checkpoint import read_checkpoint
from layers.logic import ServerState
from layers.network.control import CONTROL
from layers.network.frames import ChunkStart, Frame, FrameReader, Kind, Piece
from tests.fedmx.golden.values import (
    CHECKPOINT,
    CONTROL_WORDS,
    FACTS,
    FEDERATION,
    JOURNAL,
    LEDGER,
    MESSAGES,
    ROUND,
    STATE,
)
from tests.fedmx.golden.write import FOLDER, RUN, write_all


def exact(value: Any) -> Any:
    """Return a form in which two values are equal only if every type and bit is."""
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), [(one.name, exact(getattr(value, one.name))) for one in fields(value)]
    if isinstance(value, dict):
        return "dict", [(type(key), key, exact(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [exact(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return isinstance(value, np.ndarray), value.dtype.str, value.shape, value.tobytes()
    return type(value), value


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    found = read_checkpoint(FOLDER / "checkpoint.safetensors")
    assert found.round == 2
    assert exact(found.state) == exact(CHECKPOINT)
    state = ServerState.of_tree(found.state["server"])
    assert exact(state) == exact(STATE)


def test_a_clients_memory_is_read_as_it_was_written() -> None:
    assert exact(ClientMemory(FOLDER / "memory", RUN, 4).load()) == exact(LEDGER)


def test_a_runs_facts_and_records_are_read_as_they_were_written() -> None:
    run = RunFolder.open(FOLDER / "run")
    assert run.facts == FACTS
    assert run.experiment_yaml == "name: digits\n"
    (round,) = run.rounds()
    # By hand, because these names are what other programs read.
    named = {
        "epsilon": 1.5,
        "round": 3,
        "accuracy": 0.75,
        "loss": 0.5,
        "client_accuracy_mean": 0.7,
        "client_accuracy_variance": 0.0,
        "train_loss": 2.25,
        "participants": [5],
        "selected": 4,
        "tasks": 1,
        "updates": 2,
        "rejected": 1,
        "declined": 1,
        "lost": 1,
        "up_bytes": 400,
        "down_bytes": 2000,
        "control_bytes": 640,
        "file_bytes": 12400,
        "rejected_connections": ["127.0.0.1: the token is another"],
        "seconds": 1.25,
        "elapsed_s": 12.5,
        "clock_s": 4.25,
        "clock_elapsed_s": 3600.0,
        "virtual": True,
        "learning_rate": 0.05,
        "model_sha256": "0f" * 32,
    }
    assert round | named == round
    (line,) = run.journal()
    found = Journal.of(line, None)
    assert (found.population, found.excluded) == (JOURNAL.population, JOURNAL.excluded)
    assert repr(found.entries) == repr(JOURNAL.entries)
    clients = list(run.clients())
    assert [client["client"] for client in clients] == [5, 0, 7, 4]
    assert clients[0] == {
        "loss": 2.25,
        "norm": 1.5,
        "round": 3,
        "client": 5,
        "status": "accepted",
        "reason": "",
        "traceback": "",
        "samples": 600,
        "steps": 120,
        "up_bytes": 400,
        "down_bytes": 1000,
        "update_blake3": ["a0" * 32],
        "asked_s": 0.0,
        "trained_s": 2.5,
        "decided_s": 3.0,
        "sending_s": 3.0,
        "ended_s": 4.25,
    }
    assert clients[3]["loss"] is None, "JSON has no infinity"
    assert [client["status"] for client in clients[1:]] == ["declined", "lost", "rejected"]


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_read_as_it_was_sent(name) -> None:
    data = (FOLDER / "messages" / f"{name}.bin").read_bytes()
    assert exact(CODEC.decode(data)) == exact(MESSAGES[name])


@pytest.mark.parametrize("name", FEDERATION)
def test_a_message_of_a_federation_is_read_as_it_was_sent(name) -> None:
    data = (FOLDER / "federation" / f"{name}.bin").read_bytes()
    assert exact(FEDERATION_CODEC.decode(data)) == exact(FEDERATION[name])


@pytest.mark.parametrize("name", CONTROL_WORDS)
def test_a_word_of_control_is_read_as_it_was_sent(name) -> None:
    data = (FOLDER / "control" / f"{name}.bin").read_bytes()
    assert exact(CONTROL.decode(data)) == exact(CONTROL_WORDS[name])


def test_frames_are_read_as_they_were_sent() -> None:
    read = []
    for part in FrameReader().feed((FOLDER / "frames.bin").read_bytes()):
        match part:
            case Frame(kind, stream, payload):
                read.append((kind.name, stream, payload))
            case ChunkStart(kind, stream, length):
                read.append((kind.name, stream, length))
            case Piece(kind, stream, data):
                read.append((kind.name, stream, bytes(data)))
    chunks = ("DATA", "FILE_DATA")
    expected = [(kind.name, 7, b"word") for kind in Kind if kind.name != "PING"]
    expected += [("PING", 7, b""), *((kind, 7, 4) for kind in chunks)]
    assert sorted(read, key=str) == sorted(expected, key=str)


def test_every_kind_of_message_has_a_golden_file() -> None:
    assert {type(message) for message in MESSAGES.values()} == set(CODEC._numbers)
    assert {type(message) for message in FEDERATION.values()} == set(FEDERATION_CODEC._numbers)
    assert {type(words) for words in CONTROL_WORDS.values()} == set(CONTROL._numbers)
    kept = {path.stem for path in (FOLDER / "messages").iterdir()}
    assert kept == set(MESSAGES)


def test_today_the_same_is_written(tmp_path: Path) -> None:
    """See `write.py` for how the files are renewed when a format is meant to change."""
    write_all(tmp_path)
    written = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(written) == 3 + 5 + len(MESSAGES) + len(FEDERATION) + len(CONTROL_WORDS)
    for path in written:
        golden = FOLDER / path.relative_to(tmp_path)
        if path.suffix == ".safetensors":
            # The library may lay a file out in another way; its content is ours.
            assert content(path) == content(golden), golden.name
        else:
            assert path.read_bytes() == golden.read_bytes(), golden.name


def content(path: Path) -> Any:
    """Return the metadata and the tensors of a safetensors file."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        names = sorted(file.keys())
        return file.metadata(), [(name, exact(file.get_tensor(name))) for name in names]


def test_the_experiments_records_are_lines_of_strict_json() -> None:
    found = json_lines(FOLDER / "run" / "rounds.jsonl")[0].keys()
    assert found == ROUND.record().keys() | {"checksum"}
