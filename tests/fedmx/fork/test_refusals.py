"""What would make the rounds before a fork untrue is refused, in one line, and leaves no folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder
from fedmx.errors import FedmxError
from fedmx.history import diff, fork
from fedmx.run.records import JsonLines
from tests.fedmx.fork.parents import TREE, contents, ended
from tests.fedmx.recorded_runs import record


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return record(Experiment(**{**TREE, "rounds": 3}), tmp_path_factory.mktemp("runs"))


CANNOT = "a fork cannot change it, since "


@pytest.mark.parametrize(
    ("round", "overrides", "without", "text"),
    [
        (1, ["seed=2"], (), f"seed: {CANNOT}"),
        (1, ["clients=7"], (), f"clients: {CANNOT}"),
        (1, ["compute.model=lenet5"], (), f"compute.model: {CANNOT}"),
        (1, ["compute.data={name: arrays, path: a.npz}"], (), f"compute.data: {CANNOT}"),
        (1, ["compute.partition=iid"], (), f"compute.partition: {CANNOT}"),
        (1, ["compute.normalise.scale=8"], (), f"compute.normalise: {CANNOT}"),
        (1, ["compute.bits=portable"], (), f"compute.bits: {CANNOT}"),
        (1, ["compute.evaluate.sample=10"], (), f"compute.evaluate.sample: {CANNOT}"),
        (1, ["clock.devices=lognormal"], (), "clock.devices: a fork cannot change between real"),
        (1, ["logic.preset={name: fedshare}"], (), "takes samples out before the data are divid"),
        (1, ["logic.selector.fraction=2"], (), "--set logic.selector.fraction:"),
        (1, ["logic.aggregator=krumm"], (), "unknown aggregator"),
        (1, [], [6], "without: must be clients from 0 to 5, not 6"),
        (1, [], range(6), "without: leaves out all clients"),
        (1, ["logic.min_updates=6"], [0], "must be at most clients (6) less those of without (1)"),
        (4, [], (), "a fork can begin after round 0 to 3, not 4"),
        (-1, [], (), "a fork can begin after round 0 to 3, not -1"),
        (3, [], (), "nothing is left to run; set rounds to more, as --set rounds=6"),
        (2, ["rounds=2"], (), "nothing is left to run"),
        (None, ["logic.preset=fedadam"], (), "say after which round the fork begins"),
    ],
)
def test_a_fork_that_would_be_untrue_is_refused(
    round: int | None, overrides: list[str], without: Sequence[int], text: str, parent: RunFolder
) -> None:
    before, there = contents(parent), set(parent.path.parent.iterdir())
    with pytest.raises(FedmxError) as caught:
        fork(parent, round, overrides, without)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert contents(parent) == before
    assert set(parent.path.parent.iterdir()) == there


def test_a_run_without_rounds_is_forked_before_the_first(parent: RunFolder, tmp_path: Path) -> None:
    run = Path(shutil.copytree(parent.path, tmp_path / "run"))
    for name in ("rounds.jsonl", "clients.jsonl", "journal.jsonl"):
        (run / name).unlink()
    with pytest.raises(FedmxError) as caught:
        fork(run, 1)
    assert str(caught.value) == f"{run}: a fork can begin after round 0 to 0, not 1"
    assert fork(run, 0).folder.rounds() == []


@pytest.mark.parametrize(
    "overrides",
    [
        ["compute.train.learning_rate=0.01"],
        ["rounds=4", "stop.accuracy=0.99", "name=other", "executor=serial"],
        ["compute.evaluate.every=2", "run.checkpoint.every=2"],
        ["logic.min_updates=2", "logic.over_select=1.5", "clock.deadline_s=100"],
    ],
)
def test_settings_of_the_future_alone_may_change(overrides: list[str], parent: RunFolder) -> None:
    made = ended(fork(parent, 2, overrides))
    assert made.status == "done"
    assert made.rounds()[:2] == parent.rounds()[:2]


def test_a_fork_is_made_where_run_folder_says(parent: RunFolder, tmp_path: Path) -> None:
    made = fork(parent, 1, [f"run.folder={tmp_path / 'elsewhere'}"])
    assert made.folder.path.parent == tmp_path / "elsewhere"
    assert fork(parent, 1).folder.path.parent == parent.path.parent


@pytest.mark.parametrize("name", ["rounds.jsonl", "clients.jsonl"])
def test_a_run_with_damaged_records_is_not_forked(
    name: str, parent: RunFolder, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(parent.path, tmp_path / "run"))
    file = run / name
    first, *others = file.read_text().splitlines(keepends=True)
    file.write_text(first.replace('"round": 1', '"round": 3') + "".join(others))
    with pytest.raises(FedmxError, match=f"its records are damaged.*{name}:1"):
        fork(run, 1)
    assert list(tmp_path.iterdir()) == [run]


def test_records_against_the_chain_are_not_taken_over(parent: RunFolder, tmp_path: Path) -> None:
    run = Path(shutil.copytree(parent.path, tmp_path / "run"))
    clients = JsonLines(run / "clients.jsonl")
    last = [one["client"] for one in clients.read() if one["round"] == 2][-1]
    clients.keep(lambda one: (one["round"], one["client"]) != (2, last))
    with pytest.raises(FedmxError, match="the records of round 2 do not fit the chain"):
        fork(run, 2)
    assert fork(run, 1).folder.rounds() == parent.rounds()[:1]


def test_a_checkpoint_of_another_model_than_the_recorded_one_is_not_used(tmp_path: Path) -> None:
    run = record(Experiment(**{**TREE, "rounds": 2}), tmp_path)
    run.checkpoint_path(1).unlink()
    other = record(Experiment(**{**TREE, "rounds": 2, "seed": 5}), tmp_path / "other")
    run.checkpoint_path(1).write_bytes(other.checkpoint_path(1).read_bytes())
    with pytest.raises(FedmxError, match="ended in another model than was recorded"):
        fork(run.path, 1)


def test_a_deployment_is_not_without_a_client(tmp_path: Path) -> None:
    from fedmx import serve

    given = Experiment.parse(json.dumps({**TREE, "without": [2]}))
    with pytest.raises(FedmxError, match="without: is for simulations"):
        serve(given, "run")


def test_a_round_before_a_fork_is_forked_from_the_run_that_had_it(parent: RunFolder) -> None:
    made = fork(parent, 2)
    text = rf"this is a fork, and round 1 is of the run before it; fork that run: {parent.path}$"
    with pytest.raises(FedmxError, match=text):
        fork(made.folder, 1)


def test_a_fork_that_parts_before_it_began_is_told(parent: RunFolder, tmp_path: Path) -> None:
    compute = {**TREE["compute"], "train": {**TREE["compute"]["train"], "learning_rate": 0.5}}
    other = record(Experiment(**{**TREE, "rounds": 3, "compute": compute}), tmp_path)
    made = ended(fork(parent, 2))
    for pair in ((made, other), (other, made)):
        report = diff(*pair)
        assert (report.divergence.round, report.step) == (1, None)
        assert "round 1: the updates of clients " in report.sentence
        told = f"not replayed, since {made.path} is a fork after round 2: give the run before it, "
        assert f"{told}{parent.path}" in report.sentence
    assert diff(parent, other).step is not None
