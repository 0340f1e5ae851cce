"""A fork whose first checkpoint is lost never becomes another run, and goes on where it can."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder, simulate
from fedmx.history import fork, replay, rerun
from fedmx.history.recorded import RecordedRun
from fedmx.run import RunError
from fedmx.server.restoring import restore
from layers.logic import BrokenModel, RoundReport, Traffic
from tests.fedmx.command_line import fedmx
from tests.fedmx.fork.parents import TREE, chain, contents, ended
from tests.fedmx.recorded_runs import record

pytestmark = pytest.mark.timeout(120)

LOST = r"the checkpoint that the fork begins with is gone or damaged; make the fork again from "


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A fork after round 3 of a run of 6 rounds."""
    return ended(fork(record(Experiment(**TREE), tmp_path_factory.mktemp("runs")), 3))


def copy_of(run: RunFolder, folder: Path) -> RunFolder:
    """A copy that was killed at the end."""
    copy = Path(shutil.copytree(run.path, folder / "copy"))
    (copy / "status.json").unlink()
    return RunFolder.open(copy)


either_way = pytest.mark.parametrize("spoil", [Path.unlink, damage])


@either_way
def test_a_fork_without_a_checkpoint_is_not_resumed_and_loses_nothing(
    spoil: Callable[[Path], None], done: RunFolder, tmp_path: Path
) -> None:
    run = copy_of(done, tmp_path)
    for path in run.checkpoints_path.iterdir():
        spoil(path)
    (run.path / "lock").unlink(missing_ok=True)
    before = contents(run)
    found = fedmx("resume", run.path, cwd=tmp_path)
    assert found.code == 2
    assert found.err.endswith(f": {LOST}{done.facts['fork']['folder']}, after round 3\n")
    after = contents(run)
    assert {name: after[name] for name in before} == before


@either_way
def test_a_fork_without_its_first_checkpoint_is_not_replayed_as_another_run(
    spoil: Callable[[Path], None], done: RunFolder, tmp_path: Path
) -> None:
    run = copy_of(done, tmp_path)
    spoil(run.checkpoint_path(3))
    with pytest.raises(RunError, match=LOST):
        replay(run)
    with pytest.raises(RunError, match=LOST):
        rerun(run, 4)
    assert replay(run, 6).same


@either_way
def test_a_fork_goes_on_from_a_newer_checkpoint_and_says_that_its_first_is_lost(
    spoil: Callable[[Path], None], done: RunFolder, tmp_path: Path
) -> None:
    run = copy_of(done, tmp_path)
    spoil(run.checkpoint_path(3))
    run.checkpoint_path(6).unlink()
    found = fedmx("resume", run.path, cwd=tmp_path)
    assert found.code == 0, found
    assert "round-000003.safetensors: the checkpoint is damaged" in found.err
    assert "no step back leads to the begin of the fork" in found.err
    assert chain(run) == chain(done)


def test_no_step_back_leads_a_fork_to_the_initial_model(done: RunFolder, tmp_path: Path) -> None:
    run = copy_of(done, tmp_path)
    damage(run.checkpoint_path(3))
    with simulate(RecordedRun.open(run).assembly) as server:
        restore(server, run)
        last = server.state.round
        assert last > 3
        server.recorder = None  # as if no newer state was kept
        broken = BrokenModel("broken", RoundReport(last + 1, 0.1, 2, (), Traffic()), at_start=True)
        with pytest.raises(BrokenModel, match=r"broken; .*000003"):
            server._step_back(broken)
        assert server.state.round == last
