"""A run that goes on after records were lost has no hole that nobody was told of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fedmx import Assembly, Experiment, RunFolder, recorded, simulate
from fedmx.history import fork
from fedmx.journal.chain import updates_of
from fedmx.run import RunError
from fedmx.run.durable import document_text
from tests.fedmx.fork.parents import TREE, chain, ended
from tests.fedmx.recorded_runs import record

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    given = Experiment(**{**TREE, "run": {"checkpoint": {"keep": 5}}})
    return record(given, tmp_path_factory.mktemp("runs"))


def killed(run: RunFolder, folder: Path, lines: list[bytes], **facts: str) -> RunFolder:
    """A copy that was killed after round 5, with these lines of rounds.jsonl."""
    copy = Path(shutil.copytree(run.path, folder / "copy"))
    (copy / "status.json").unlink()
    (copy / "rounds.jsonl").write_bytes(b"".join(lines))
    RunFolder.open(copy).checkpoint_path(6).unlink()
    if facts:
        document = json.loads((copy / "run.json").read_text())
        del document["checksum"]
        document["facts"] |= facts
        (copy / "run.json").write_text(document_text(document, "run.json"))
    return RunFolder.open(copy)


def lines_of(run: RunFolder) -> list[bytes]:
    return (run.path / "rounds.jsonl").read_bytes().splitlines(keepends=True)


def leave_clients_of(run: RunFolder, rounds: tuple[int, ...]) -> None:
    """Take the records of the clients of all other rounds away."""
    path = run.path / "clients.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(one for one in lines if json.loads(one)["round"] in rounds))


def resumed(run: RunFolder) -> list[int]:
    """Go on with a run to its end; return the rounds that were run."""
    server = simulate(Assembly(Experiment.parse(run.experiment_yaml)))
    return [round.round for round in recorded(server, run)]


@pytest.mark.parametrize(
    ("of", "left", "lost", "first"),
    [
        ("", (1, 2, 3), "4, 5", 4),
        ("", (1, 2, 4, 5), "3", 3),
        ("", (1, 2), "3 to 5", 3),
        ("", (2, 3, 4, 5), "1", 1),
        ("", (), "1 to 5", 1),
        ("the clients of ", (), "1 to 5", 1),
        ("the clients of ", (1, 2, 3, 5), "4", 4),
        ("the clients of ", (1, 2, 3, 4), "5", 5),
    ],
)
def test_a_simulation_makes_lost_rounds_again_and_says_so(
    of: str,
    left: tuple[int, ...],
    lost: str,
    first: int,
    whole: RunFolder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = lines_of(whole)
    run = killed(whole, tmp_path, lines[:5] if of else [lines[number - 1] for number in left])
    if of:
        leave_clients_of(run, left)
    assert resumed(run) == list(range(first, 7))
    assert chain(run) == chain(whole)
    assert updates_of(run.clients()) == updates_of(whole.clients())
    assert [one["round"] for one in run.rounds()] == [1, 2, 3, 4, 5, 6]
    assert f"the records of {of}rounds {lost} are lost" in caplog.text
    assert f"goes on after round {first - 1}, with them" in caplog.text


@pytest.mark.parametrize("line", [0, -1], ids=["the first", "the last"])
def test_a_damaged_record_of_a_client_stays_and_costs_no_round(
    line: int, whole: RunFolder, tmp_path: Path
) -> None:
    run = killed(whole, tmp_path, lines_of(whole)[:5])
    leave_clients_of(run, (1, 2, 3, 4, 5))
    path = run.path / "clients.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"accepted", b"acceqted")
    path.write_bytes(b"".join(lines))
    assert resumed(run) == [6]
    assert len(list(run.clients())) == len(list(whole.clients())) - 1


@pytest.mark.parametrize(
    ("damaged", "again", "kept"), [(3, [6], [1, 2, 4, 5, 6]), (5, [5, 6], [1, 2, 3, 4, 5, 6])]
)
def test_a_damaged_line_costs_a_round_only_if_no_sound_one_follows(
    damaged: int, again: list[int], kept: list[int], whole: RunFolder, tmp_path: Path
) -> None:
    lines = lines_of(whole)[:5]
    lines[damaged - 1] = lines[damaged - 1].replace(b"accuracy", b"accurbcy")
    run = killed(whole, tmp_path, lines)
    assert resumed(run) == again
    assert chain(run)[-1] == chain(whole)[-1]
    assert [one["round"] for one in run.rounds()] == kept


@pytest.mark.parametrize(
    ("left", "named"), [(3, "rounds 4, 5 are lost"), (5, "the clients of rounds 1 to 5 are lost")]
)
def test_a_deployed_run_goes_on_and_names_what_is_lost(
    left: int, named: str, whole: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = killed(whole, tmp_path, lines_of(whole)[:left], mode="server")
    if left == 5:
        (run.path / "clients.jsonl").unlink()
    assert resumed(run) == [6]
    assert f"the records of {named}; the run goes on without them" in caplog.text


def test_a_fork_that_has_lost_what_it_took_over_is_not_resumed(
    whole: RunFolder, tmp_path: Path
) -> None:
    made = ended(fork(whole, 3, [f"run.folder={tmp_path}"]))
    for left, text in ((2, "the records of the rounds before the fork are"), (3, "")):
        run = killed(made, tmp_path / str(left), lines_of(made)[:left])
        before = lines_of(run)
        if not text:
            assert resumed(run) == [4, 5, 6]
            assert chain(run) == chain(whole)
            continue
        with pytest.raises(RunError, match=f"{text} gone or damaged; make the fork again from"):
            resumed(run)
        assert lines_of(run) == before
