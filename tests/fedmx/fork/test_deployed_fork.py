"""A deployed run can be forked, with the memory of its clients; a fork can be packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmx.history import PackError, fork, pack, replay, verify
from fedmx.run.checkpoint import checkpoints_in, read_checkpoint, write_checkpoint
from tests.fedmx.fork.parents import ended, models
from tests.fedmx.kinds import KINDS
from tests.fedmx.recorded_runs import run_of


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("kind", ["fedavg", "scaffold"])
def test_a_fork_of_a_deployed_run_is_the_fork_of_the_same_simulation(
    kind: str, every: int, tmp_path: Path
) -> None:
    """Also after a round whose checkpoint is kept: it has no memory of deployed clients."""
    kinds = {"scaffold": KINDS["scaffold"], "fedavg": {}}
    found = {}
    for deployed in (True, False):
        folder = tmp_path / str(deployed)
        folder.mkdir()
        settings = {**kinds[kind], "rounds": 4, "run": {"checkpoint": {"every": every}}}
        run = run_of(folder, deployed=deployed, **settings)
        for number, path in checkpoints_in(run.checkpoints_path) if deployed else ():
            state = read_checkpoint(path).state
            clients = {**state["clients"], "ledgers": {}}
            write_checkpoint(path, number, {**state, "clients": clients})
        assert run.checkpoint_path(2).exists() == (every == 1)
        made = ended(fork(run, 2, ["compute.train.learning_rate=0.02"], modules=None))
        assert models(made)[:2] == models(run)[:2]
        assert models(made)[2] != models(run)[2]
        assert made.facts["mode"] == "simulation"
        assert replay(made).same
        found[deployed] = models(made)
    assert found[True] == found[False]


def test_a_packed_fork_is_verified_from_where_it_begins(tmp_path: Path) -> None:
    run = run_of(tmp_path, rounds=4, **{"logic": {"preset": {"name": "stc"}}})
    made = ended(fork(run, 2, ["compute.train.learning_rate=0.02"], modules=None))
    packed = pack(made, tmp_path / "fork.fedmx", modules=None)
    assert "checkpoints/round-000002.safetensors" in packed.members
    assert str(tmp_path).encode() not in packed.members["run.json"]
    rounds: list[int] = []
    found = verify(tmp_path / "fork.fedmx", on_round=lambda round, last: rounds.append(round))
    assert (found.outcome, found.reason) == ("same bits", "")
    assert rounds == [3, 4]
    assert "1 to 2" in found.shared


def test_a_fork_without_its_first_checkpoint_is_not_packed(tmp_path: Path) -> None:
    made = ended(fork(run_of(tmp_path, rounds=4), 2, modules=None))
    made.checkpoint_path(2).unlink()
    with pytest.raises(PackError, match="round-000002"):
        pack(made, tmp_path / "fork.fedmx", modules=None)
