"""A flipped bit in a run folder is found and named, or changes nothing; the rest is still read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder
from fedmx.report import Comparison, write_report
from fedmx.report.summary import RunSummary
from fedmx.run import RunError
from fedmx.run.durable import CHECKSUM, write_document

ROUNDS = 4
FLIPS = 300
YAML = "name: digits\nrounds: 4\nclients: 2\nnetwork:\n  insecure: false\n"
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    facts = {"seed": 3, "mode": "simulation", "instructions": "avx2", "digest": "0" * 64}
    folder = RunFolder.create(tmp_path, "digits", YAML, facts, {"words.json": b'["a", "b"]'})
    for number in range(1, ROUNDS + 1):
        accuracy = 0.1 * number
        folder.append_round(
            {"round": number, "accuracy": accuracy, "loss": 2.0, "virtual": False, "name": "é,\n"}
        )
        folder.append_clients(
            {"round": number, "client": client, "status": "accepted", "up_bytes": 1234}
            for client in range(2)
        )
    folder.model_path.write_bytes(random.Random(1).randbytes(500))
    folder.finish("stopped", "accuracy 0.4 reached")
    return folder


def flips(path: Path) -> Iterator[str]:
    """Flip one bit of a file after another, each in the file as it was; yield what was done."""
    content, seed = path.read_bytes(), random.Random(path.name)
    bits = range(8 * len(content))
    for bit in seed.sample(bits, min(FLIPS, len(bits))):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        yield f"bit {bit} of {path.name}: {bytes(damaged[bit // 8 - 9 : bit // 8 + 9])!r}"
    path.write_bytes(content)


def all_of(path: Path) -> tuple[Any, ...]:
    """Everything that a reader gets from a run folder."""
    run = RunFolder.open(path, salvage=True)
    rounds, clients = run.rounds(), list(run.clients())
    found = run.status, run.reason, run.experiment_yaml, run.facts, rounds, clients
    return run.damage, found


@pytest.mark.parametrize(
    "name", ["run.json", "experiment.yaml", "status.json", "rounds.jsonl", "clients.jsonl"]
)
def test_every_flipped_bit_is_named_or_changes_nothing(folder: RunFolder, name: str) -> None:
    undamaged, value = all_of(folder.path)
    assert undamaged == ()
    harmless = 0
    for flip in flips(folder.path / name):
        damage, found = all_of(folder.path)
        if damage:
            assert all(str(folder.path / name) in one and "\n" not in one for one in damage), flip
        else:
            assert repr(found) == repr(value), flip
            harmless += 1
    assert harmless < FLIPS / 20, "a checksum that is never looked at finds nothing"
    assert all_of(folder.path) == ((), value)


@pytest.mark.parametrize("name", ["rounds.jsonl", "clients.jsonl"])
def test_every_flipped_bit_costs_no_other_record(folder: RunFolder, name: str) -> None:
    whole = RunFolder.open(folder.path)
    before = {"rounds.jsonl": whole.rounds(), "clients.jsonl": list(whole.clients())}[name]
    for flip in flips(folder.path / name):
        run = RunFolder.open(folder.path)
        after = run.rounds() if name == "rounds.jsonl" else list(run.clients())
        # A damaged line break joins two lines; any other damage is in one.
        assert len(after) >= len(before) - 2, flip
        assert [record for record in before if record in after] == after, flip


@pytest.mark.parametrize("name", ["words.json", "model.safetensors"])
def test_every_flipped_bit_of_a_kept_file_is_found(folder: RunFolder, name: str) -> None:
    path = folder.path / name
    folder.check(path)
    for _ in flips(path):
        with pytest.raises(RunError, match=rf"{name}: damaged .its SHA-256 is not the recorded"):
            RunFolder.open(folder.path).check(path)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace('"seed": 3', '"seed": 2'), r"run\.json: damaged \(its checksum"),
        (lambda text: text.replace('"checksum"', '"chekcsum"'), r"run\.json: damaged \(its checks"),
        (lambda text: text.replace('"seed": 3,', '"seed": 3'), r"run\.json:\d+: damaged \(Expect"),
        (lambda text: text.replace('"format": 4', '"format": true'), r"run\.json: damaged"),
    ],
)
def test_a_damaged_run_json_is_refused_in_one_line_that_says_what_to_do(
    folder: RunFolder, damage: Callable[[str], str], reason: str
) -> None:
    path = folder.path / "run.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(RunError, match=rf"{reason}.*; restore the file, or start a new run$"):
        RunFolder.open(folder.path)


def test_a_report_goes_on_with_what_is_sound_and_says_so(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    lines = (folder.path / "rounds.jsonl").read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace('"accuracy": 0.2', '"accuracy": 0.9')
    (folder.path / "rounds.jsonl").write_text("".join(lines))
    run = RunFolder.open(folder.path, salvage=True)
    summary = RunSummary.of(run)
    assert [point.round for point in summary.points] == [1, 3, 4]
    told = f"{folder.path}/rounds.jsonl:2: the line is damaged; it is left out"
    assert summary.folder.damage == (told,)
    write_report([run], folder.report_path)
    assert told in folder.report_path.read_text()
    Comparison.of([run]).text()
    assert [record.getMessage() for record in caplog.records] == [told], "said once"


def test_resuming_keeps_a_damaged_record_of_an_earlier_round_and_makes_later_ones_anew(
    folder: RunFolder,
) -> None:
    path = folder.path / "rounds.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for number in (1, 3):  # the rounds 2 and 4; the checkpoint is of round 2
        lines[number] = lines[number].replace(b'"loss": 2.0', b'"loss": 6.0')
    path.write_bytes(b"".join(lines))
    run = RunFolder.open(folder.path)
    run.truncate_after(2)
    assert path.read_bytes().splitlines(keepends=True) == lines[:2]
    run.append_round({"round": 3})
    assert [record["round"] for record in run.rounds()] == [1, 3]
    assert run.damage == (f"{path}:2: the line is damaged; it is left out",)


def test_a_run_whose_ending_is_damaged_can_be_resumed(folder: RunFolder) -> None:
    path = folder.path / "status.json"
    path.write_text(path.read_text().replace("stopped", "stoqped"))
    run = RunFolder.open(folder.path)
    assert run.status == "interrupted"
    assert run.reason == "it is not known how the run ended: status.json is damaged"
    run.truncate_after(ROUNDS)
    assert run.damage == ()
    run.finish("done")
    assert RunFolder.open(folder.path).status == "done"


def test_a_last_line_with_a_damaged_break_is_not_taken_for_unfinished(folder: RunFolder) -> None:
    path = folder.path / "rounds.jsonl"
    path.write_bytes(path.read_bytes()[:-1] + b"J")
    run = RunFolder.open(folder.path)
    assert len(run.rounds()) == ROUNDS - 1
    assert run.damage == (f"{path}:{ROUNDS}: the line is damaged; it is left out",)


@pytest.mark.parametrize("form", [1, 2, 3, 5])
def test_a_folder_of_another_format_is_refused_with_the_version_that_wrote_it(
    folder: RunFolder, form: int
) -> None:
    document = {"format": form, "facts": {**folder.facts, "fedmx": "0.0.7"}, "files": {}}
    write_document(folder.path / "run.json", document)
    with pytest.raises(RunError, match=rf"format {form}\b.*0\.0\.7") as caught:
        RunFolder.open(folder.path)
    assert "\n" not in str(caught.value)


def test_a_record_cannot_take_the_key_of_the_checksum(folder: RunFolder) -> None:
    with pytest.raises(RunError, match=r"rounds.jsonl: checksum is a key of fedmx itself"):
        folder.append_round({"round": 9, CHECKSUM: 1})
    assert len(folder.rounds()) == ROUNDS
