"""Every round of a run, and every client's part in it, replays to the recorded bits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmx import FedmxError, RunFolder
from fedmx.history import RecordedRun, diff, fork, replay
from fedmx.history.replay import Part
from fedmx.run import RunError
from fedmx.run.records import JsonLines
from tests.fedmx import kinds
from tests.fedmx.recorded_runs import changed_records, run_of

MINE = None  # every module


@pytest.fixture(scope="module", params=list(kinds.KINDS))
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kind_folder: Path
) -> RunFolder:
    """Three rounds of one kind, with checkpoints of rounds 2 and 3."""
    tree = {**kinds.TREE, **kinds.KINDS[request.param], "run": {"checkpoint": {"every": 2}}}
    return run_of(tmp_path_factory.mktemp("runs"), modules=kind_folder, **tree)


def parts_of(run: RunFolder) -> Iterator[tuple[dict[str, Any], Part]]:
    """The record of each task of each client in each round, and its replay."""
    opened = RecordedRun.open(run, modules=None)
    records: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for record in run.clients():
        if record["status"] != "not-selected":
            records.setdefault((record["round"], record["client"]), []).append(record)
    for place, of_client in records.items():
        yield from zip(of_client, replay(opened, *place).parts, strict=True)


def test_every_round_replays_to_the_recorded_bits(run: RunFolder) -> None:
    report = replay(run, modules=None)
    assert [one.round for one in report.rounds] == [1, 2, 3]
    assert report.same is True
    assert all(one.updates for one in report.rounds)


def test_tasks_and_bytes_of_the_rounds_are_those_of_the_clients(run: RunFolder) -> None:
    clients, rounds = list(run.clients()), run.rounds()
    of_tasks = ("tasks",) if "tasks" in clients[0] else ()
    for name in ("up_bytes", "down_bytes", *of_tasks):
        assert sum(one[name] for one in clients) == sum(one[name] for one in rounds), name
    accepted = [one["client"] for one in clients if one["status"] == "accepted"]
    assert sorted(accepted) == sorted(client for one in rounds for client in one["participants"])


def test_every_part_of_a_client_replays_to_its_recorded_update(run: RunFolder) -> None:
    compared = 0
    for record, part in parts_of(run):
        assert (part.record, part.version) == (record, record.get("version"))
        assert (part.fate.status, part.fate.reason) == (record["status"], record["reason"])
        assert part.same is (True if record["status"] == "accepted" else None)
        compared += part.same is True
    assert compared > 3


def test_what_workers_recorded_replays_on_any_executor(tmp_path: Path) -> None:
    """One process records the same, as test_processes.py shows for each kind."""
    scaffold = {**kinds.TREE, **kinds.KINDS["scaffold"], "executor": {"processes": 1}}
    run = run_of(tmp_path, **scaffold)
    for other in ("executor=serial", "executor.processes=1"):
        report = replay(run, overrides=[other])
        assert report.same is True
        assert len(report.rounds) == 3
    assert {replay(run, one["round"], one["client"]).same for one in run.clients(3)} == {True}


def test_a_part_shows_what_each_station_did_in_order(halving: RunFolder) -> None:
    (part,) = replay(halving, 4, 3, modules=MINE).parts
    assert [(one.end, one.step) for one in part.steps] == [
        ("server", "start"),
        ("server", "Stc.send"),
        ("client", "task"),
        ("client", "Stc.receive"),
        ("client", "training"),
        ("client", "Halving.send"),
        ("client", "Stc.send"),
        ("client", "message"),
        ("server", "Stc.receive"),
        ("server", "Halving.receive"),
        ("server", "decoded"),
    ]
    by_station = {one.step: one for one in part.steps}
    (record,) = [one for one in halving.clients(4) if one["client"] == 3]
    training, halved = by_station["training"], by_station["Halving.send"]
    assert training.notes["loss"] == record["loss"]
    assert training.notes["steps"] == record["steps"]
    assert halved.numbers.norm == pytest.approx(training.numbers.norm / 2)
    assert by_station["decoded"].numbers.zeros == pytest.approx(0.9, abs=0.01)
    assert by_station["message"].bytes < training.bytes
    assert by_station["message"].bytes <= record["up_bytes"]
    assert by_station["message"].blake3 == record["update_blake3"][0]
    assert all(one.numbers.not_finite == 0 for one in part.steps)
    assert not any(one.arrays for one in part.steps)  # nobody asked for them


def test_only_the_part_that_was_asked_for_is_worked_on(
    halving: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedmx.client.participant import Participant

    worked: list[tuple[int, int]] = []
    train = Participant.train

    def noted(self: Participant, task: Any) -> Any:
        worked.append((task.round, self.client))
        return train(self, task)

    monkeypatch.setattr(Participant, "train", noted)
    assert replay(halving, 5, 3, modules=MINE).same is True  # from the checkpoint of round 4
    assert worked == [(5, 3)]


def test_a_round_whose_model_is_another_is_found(
    halving: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = changed_records(halving, tmp_path, "rounds.jsonl", model_sha256="0" * 64)
    report = replay(other, modules=MINE)
    assert report.same is False
    assert [one.round for one in report.rounds if not one.same] == [3]
    replay(other, 3, modules=MINE)  # the rounds before it are run again, and are the recorded ones
    assert caplog.messages == []
    replay(other, 4, modules=MINE)
    assert caplog.messages == [f"{other.path}: run again, round 3 ended in another model"]


@pytest.mark.parametrize(
    ("file", "values"),
    [("rounds.jsonl", {"accuracy": 0.999}), ("clients.jsonl", {"update_blake3": []})],
)
def test_a_record_that_was_changed_is_found(
    file: str, values: dict[str, Any], halving: RunFolder, tmp_path: Path
) -> None:
    (found,) = replay(changed_records(halving, tmp_path, file, **values), 3, modules=MINE).rounds
    assert not found.same
    assert not found.record_holds
    assert found.model_sha256 == found.recorded_model_sha256


def test_an_update_that_is_another_is_found(halving: RunFolder, tmp_path: Path) -> None:
    other = changed_records(halving, tmp_path, "clients.jsonl", update_blake3=["0" * 64])
    assert replay(other, 3, modules=MINE).rounds[0].differing == (0, 1, 2, 3, 4, 5)
    assert replay(other, 3, 2, modules=MINE).same is False
    assert replay(other, 4, 2, modules=MINE).same is True


def test_records_without_hashes_cannot_be_compared(halving: RunFolder, tmp_path: Path) -> None:
    other = changed_records(halving, tmp_path, "rounds.jsonl", chain=None)
    with pytest.raises(RunError, match="round 3 has no hashes"):
        replay(other, modules=MINE)
    (after,) = replay(other, 4, modules=MINE).rounds
    assert not after.record_holds


def test_who_had_no_part_is_told_with_those_who_had(tmp_path: Path) -> None:
    run = run_of(tmp_path, rounds=2)
    clients = sorted(record["client"] for record in run.clients(2))
    absent = next(one for one in range(6) if one not in clients)
    listed = ", ".join(map(str, clients))
    with pytest.raises(RunError, match=f"{absent} has no part in round 2; .* {listed}"):
        replay(run, 2, absent)


def test_what_is_not_there_is_told_in_one_line(halving: RunFolder) -> None:
    with pytest.raises(RunError, match="round 9 is not recorded"):
        replay(halving, 9, modules=MINE)
    with pytest.raises(RunError, match="a client's part needs a round"):
        replay(halving, client=3, modules=MINE)
    with pytest.raises(FedmxError, match=r"unknown method .*'Stc.sned'; did you mean"):
        replay(halving, 2, 3, stop_at="Stc.sned", modules=MINE)


def test_a_fork_is_replayed_from_where_it_goes_its_own_way(tmp_path: Path) -> None:
    run = run_of(tmp_path, rounds=4)
    made = fork(run.path, round=2, overrides=["compute.train.learning_rate=0.2"])
    for _ in made.rounds():
        pass
    report = replay(made.folder)
    assert [one.round for one in report.rounds] == [3, 4]
    assert report.same is True
    found = diff(run, made.folder)
    assert found.settings == ("compute.train.learning_rate: 0.05 against 0.2",)
    assert (found.divergence.round, found.step.step) == (3, "task")
    assert str(found.step.other) == "learning rate 0.05 against 0.2"


@pytest.mark.parametrize("name", ["projected stc", "scaffold"])
def test_a_deployed_run_replays_by_its_course(name: str, tmp_path: Path) -> None:
    run = run_of(tmp_path, deployed=True, **{**kinds.TREE, **kinds.KINDS[name]})
    report = replay(run)
    assert [one.round for one in report.rounds] == [1, 2, 3]
    assert report.same is True
    for record, part in parts_of(run):
        assert record["status"] == "accepted"
        assert part.same is True


@pytest.mark.parametrize(
    ("file", "damaged", "whose"),
    [
        ("rounds.jsonl", (b"accuracy", b"accurbcy"), "round 1"),
        ("clients.jsonl", (b"accepted", b"acceqted"), "clients 0"),
    ],
)
def test_a_damaged_record_is_named_and_the_others_are_replayed(
    halving: RunFolder, tmp_path: Path, file: str, damaged: tuple[bytes, bytes], whose: str
) -> None:
    """It is not taken for other bits."""
    copy = Path(shutil.copytree(halving.path, tmp_path / "copy"))
    (copy / file).write_bytes((copy / file).read_bytes().replace(*damaged, 1))
    with pytest.raises(RunError) as caught:
        replay(copy, modules=None)
    assert f"no sound record of {whose} " in str(caught.value)
    assert f"{copy / file}:1: the line is damaged" in str(caught.value)
    assert replay(copy, 3, modules=None).same is True


def test_records_that_a_killed_run_did_not_finish_are_not_told_as_changed(
    halving: RunFolder, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(halving.path, tmp_path / "copy"))
    lines = (copy / "clients.jsonl").read_bytes().splitlines(keepends=True)
    last = b"".join(line for line in lines if b'"round": 6,' not in line)
    for left in (last, last + lines[-1][:40]):  # the unfinished line is no damage
        (copy / "clients.jsonl").write_bytes(left)
        for round, client in ((None, None), (6, None), (6, 3)):
            with pytest.raises(RunError) as caught:
                replay(copy, round, client, modules=MINE)
            assert "the records of round 6 are not whole" in str(caught.value)
            assert "clients 0, 1, " in str(caught.value)
            assert "the run ended while they were written" in str(caught.value)
            assert "\n" not in str(caught.value)
        assert replay(copy, 5, modules=MINE).same is True


@pytest.mark.parametrize(("round", "named"), [(1, r"journal\.jsonl: .* round 1"), (3, "round 3")])
def test_a_run_without_a_record_of_its_journal_is_not_replayed(
    round: int, named: str, halving: RunFolder, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(halving.path, tmp_path / "copy"))
    JsonLines(copy / "journal.jsonl").keep(lambda row: row["round"] != round)
    for given in ((), (3,), (3, 2)):
        with pytest.raises(FedmxError, match=named):
            replay(copy, *given, modules=MINE)
