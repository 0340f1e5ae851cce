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
    ("left", "lost", "first"),
    [
        ((1, 2, 3), "4, 5", 4),
        ((1, 2, 4, 5), "3", 3),
        ((1, 2), "3 to 5", 3),
        ((2, 3, 4, 5), "1", 1),
        ((), "1 to 5", 1),
    ],
)
def test_a_simulation_makes_lost_rounds_again_and_says_so(
    left: tuple[int, ...],
    lost: str,
    first: int,
    whole: RunFolder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = killed(whole, tmp_path, [lines_of(whole)[number - 1] for number in left])
    assert resumed(run) == list(range(first, 7))
    assert chain(run) == chain(whole)
    assert [one["round"] for one in run.rounds()] == [1, 2, 3, 4, 5, 6]
    told = (
        f"the records of rounds {lost} are lost; the run goes on after round {first - 1}, with them"
    )
    assert told in caplog.text


@pytest.mark.parametrize(
    ("left", "lost", "first"), [((), "1 to 5", 1), ((1, 2, 3, 5), "4", 4), ((1, 2, 3, 4), "5", 5)]
)
def test_lost_records_of_clients_are_made_again_as_those_of_rounds(
    left: tuple[int, ...],
    lost: str,
    first: int,
    whole: RunFolder,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = killed(whole, tmp_path, lines_of(whole)[:5])
    leave_clients_of(run, left)
    assert resumed(run) == list(range(first, 7))
    assert updates_of(run.clients()) == updates_of(whole.clients())
    assert (
        f"the records of the clients of rounds {lost} are lost; the run goes on after round "
        f"{first - 1}, with them"
    ) in caplog.text


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


def test_a_simulation_whose_last_record_is_damaged_makes_it_again(
    whole: RunFolder, tmp_path: Path
) -> None:
    lines = lines_of(whole)
    run = killed(whole, tmp_path, [*lines[:4], lines[4].replace(b"accuracy", b"accurbcy")])
    assert resumed(run) == [5, 6]
    assert chain(run) == chain(whole)


def test_a_damaged_line_between_sound_ones_stays_and_costs_no_round(
    whole: RunFolder, tmp_path: Path
) -> None:
    lines = lines_of(whole)
    lines[2] = lines[2].replace(b"accuracy", b"accurbcy")
    run = killed(whole, tmp_path, lines[:5])
    assert resumed(run) == [6]
    assert chain(run)[-1] == chain(whole)[-1]
    assert [one["round"] for one in run.rounds()] == [1, 2, 4, 5, 6]


def test_a_deployed_run_goes_on_and_names_the_lost_rounds(
    whole: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = killed(whole, tmp_path, lines_of(whole)[:3], mode="server")
    assert resumed(run) == [6]
    assert "the records of rounds 4, 5 are lost; the run goes on without them" in caplog.text


def test_a_deployed_run_goes_on_and_names_the_lost_records_of_clients(
    whole: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = killed(whole, tmp_path, lines_of(whole)[:5], mode="server")
    (run.path / "clients.jsonl").unlink()
    assert resumed(run) == [6]
    assert (
        "the records of the clients of rounds 1 to 5 are lost; the run goes on without them\n"
        in caplog.text
    )


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
