"""The server of a recorded run stands where it stood before any of its rounds."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedmx import RunFolder, simulate
from fedmx.history import RecordedRun, rerun
from fedmx.run import RunError
from fedmx.run.identity import Identity
from fedmx.run.records import JsonLines
from tests.fedmx.recorded_runs import TREE, attacked_run, run_of
from tests.fedmx.timeless import timeless

TIMES = ("elapsed_s", "clock_s")
SCAFFOLD: dict[str, Any] = {"preset": {"name": "scaffold", "fraction": 0.7}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Six rounds with memories on both ends, and checkpoints of rounds 4 and 6."""
    return run_of(tmp_path_factory.mktemp("runs"), logic=SCAFFOLD)


@pytest.fixture(scope="module")
def states(run: RunFolder) -> list[dict[str, Any]]:
    """What a checkpoint after each round would be, from before round 1 on."""
    server = simulate(RecordedRun.open(run).experiment)
    found = [server.checkpoint()]
    found += [server.checkpoint() for _ in server]
    return found


def as_text(tree: Any) -> Any:
    """The memories of a checkpoint without times, with arrays as bytes."""
    if isinstance(tree, dict):
        return {key: as_text(one) for key, one in tree.items() if key not in TIMES}
    return tree.tobytes() if hasattr(tree, "tobytes") else tree


@pytest.mark.parametrize("round", range(1, 8))
def test_it_stands_after_the_round_before_with_all_memories(
    run: RunFolder, states: list[dict[str, Any]], round: int
) -> None:
    with rerun(run, round) as server:
        assert server.state.round == round - 1
        assert as_text(server.checkpoint()) == as_text(states[round - 1])


def test_it_goes_on_as_the_run_did(run: RunFolder) -> None:
    with rerun(run.path, 3) as server:
        rounds = [one.record() for one in server]
    assert timeless(rounds) == timeless(run.rounds()[2:], "chain")


def test_workers_run_the_rounds_in_between_with_the_same_bits(
    run: RunFolder, states: list[dict[str, Any]]
) -> None:
    with rerun(run, 3, overrides=["executor.processes=1"]) as server:
        assert as_text(server.checkpoint()) == as_text(states[2])


def test_an_override_that_changes_the_result_is_refused(run: RunFolder) -> None:
    with pytest.raises(RunError, match="not the experiment that the run began with"):
        rerun(run, 2, overrides=["seed=5"])


def test_a_model_that_is_not_the_recorded_one_is_told(
    run: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Path(shutil.copytree(run.path, tmp_path / "other"))
    rounds = JsonLines(other / "rounds.jsonl")
    records = list(rounds.read())
    rounds.path.unlink()
    rounds.append({**one, "model_sha256": "0" * 64} for one in records)
    with caplog.at_level(logging.WARNING), rerun(other, 4):
        pass
    assert caplog.messages == [f"{other}: run again, round 3 ended in another model"]


@pytest.mark.parametrize("round", [0, 8])
def test_a_round_that_there_is_not_is_refused(run: RunFolder, round: int) -> None:
    with pytest.raises(RunError, match=f"no round {round} to replay; give one from 1 to 6"):
        rerun(run, round)


def test_another_version_of_what_decides_bits_is_told(
    run: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    builds = {**run.facts["builds"], "numpy": "0123456789abcdef"}
    facts = {**run.facts, "numpy": "0.9.6", "threads": 64, "builds": builds}
    other = RunFolder(run.path, run.experiment_yaml, Identity(facts))
    with caplog.at_level(logging.WARNING), rerun(other, 1):
        pass
    (line,) = caplog.messages
    there, here = run.facts["numpy"], run.facts["threads"]
    differences = f"numpy 0.9.6 against {there}, threads 64 against {here}"
    assert line == f"{run.path}: other bits are possible here: {differences}"


def test_the_folder_of_the_run_is_as_before(run: RunFolder) -> None:
    before = {path: path.read_bytes() for path in Path(run.path).rglob("*") if path.is_file()}
    with rerun(run, 3):
        pass
    assert {p: p.read_bytes() for p in Path(run.path).rglob("*") if p.is_file()} == before


@pytest.fixture(scope="module")
def stepped_back(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Eight rounds; in round 5 a client sends a huge update, and the run steps back."""
    folder = tmp_path_factory.mktemp("stepped_back")
    model = {**TREE["compute"], "model": "2nn"}
    often = {"checkpoint": {"every": 1, "keep": {"last": 8, "every": 1}}}
    return attacked_run(folder, attacked=5, rounds=8, compute=model, run=often)


@pytest.mark.parametrize("round", range(1, 10))
def test_a_run_that_stepped_back_stands_where_it_stood_last(
    stepped_back: RunFolder, round: int
) -> None:
    with rerun(stepped_back, round, modules=None) as server:
        rounds = {one.round: one.record() for one in server}  # the last one of each number
    assert timeless(rounds.values()) == timeless(stepped_back.rounds()[round - 1 :], "chain")


@pytest.mark.parametrize("round", range(2, 10))
def test_without_a_checkpoint_it_knows_the_steps_back_that_the_run_had_taken(
    stepped_back: RunFolder, round: int, tmp_path: Path
) -> None:
    bare = Path(shutil.copytree(stepped_back.path, tmp_path / "bare"))
    for checkpoint in (bare / "checkpoints").iterdir():
        checkpoint.unlink()
    kept = stepped_back.checkpoint_before(round)
    assert kept.round == round - 1
    with rerun(bare, round, modules=None) as server:
        found = server.checkpoint()
    for part in ("server", "steps_back"):  # a round that was taken back left traces on clients
        assert as_text(found[part]) == as_text(kept.state[part])


def test_a_replay_keeps_no_checkpoints(tmp_path: Path) -> None:
    often = {"checkpoint": {"every": 1, "keep": {"last": 5, "every": 1}}}
    with rerun(run_of(tmp_path, rounds=6, run=often), 1) as server:
        assert [one.round for one in server] == [1, 2, 3, 4, 5, 6]
    assert server.recorder is None
