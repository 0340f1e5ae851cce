"""A fork that changes nothing is the run, bit for bit; and the run itself is only read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmx import Experiment, RunFolder
from fedmx.errors import FedmxError
from fedmx.history import fork
from tests.fedmx import kinds
from tests.fedmx.algorithms import LOGIC, experiment
from tests.fedmx.fork.parents import TREE, chain, contents, ended, models
from tests.fedmx.recorded_runs import record, run_of

pytestmark = pytest.mark.timeout(120)

# Those that keep something, and some that do not.
SOME = [
    *(name for name in LOGIC if name.startswith(("hook", "several"))),
    "aggregator fedfv",
    *(
        f"preset {name}"
        for name in ["astraea", "csfedavg", "fedaim", "fedsso", "online-kp", "oort"]
    ),
    "preset projected-stc",
]
# They take samples out before the data are divided.
HOLD_BACK = ("hook divergence", "hook fedshare", "preset csfedavg", "preset fedshare")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return record(Experiment(**TREE), tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def averaging(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of FedAvg with all clients, so that each is known to a fork."""
    logic = {"selector": {"name": "uniform", "fraction": 1.0}}
    return record(experiment(logic), tmp_path_factory.mktemp("runs"))


# One of each kind of memory: of clients, hooks, aggregators, selectors, and of several at once.
KEEPING = ("hook scaffold", "hook stc", "hook fedadam", "aggregator fedfv", "preset csfedavg")
KEEPING += ("preset fedsso", "preset oort", "preset projected-stc", "several passes")


@pytest.mark.parametrize("name", KEEPING)
def test_a_fork_that_changes_nothing_is_the_run(name: str, tmp_path: Path) -> None:
    run = record(experiment(LOGIC[name]), tmp_path)
    before = contents(run)
    made = fork(run, 1)
    assert chain(ended(made)) == chain(run)
    assert made.origin.dropped == made.origin.empty == ()
    assert contents(run) == before


@pytest.mark.parametrize(
    "kind", ["own head", "loss with a reference", "liars", "nested", "asked", "kept state"]
)
def test_a_fork_of_another_kind_of_run_is_the_run(
    kind: str, kind_folder: Path, tmp_path: Path
) -> None:
    run = run_of(tmp_path, modules=kind_folder, **{**kinds.TREE, **kinds.KINDS[kind]})
    assert chain(ended(fork(run, 2, modules=None))) == chain(run)


def test_it_is_the_run_on_worker_processes_too(parent: RunFolder) -> None:
    assert chain(ended(fork(parent, 3, ["executor={processes: 1}"]))) == chain(parent)


def test_a_fork_of_a_fork_is_the_run(parent: RunFolder) -> None:
    first = ended(fork(parent, 2, ["run.checkpoint.every=3"]))
    assert first.checkpoint_rounds == [6, 3, 2]  # round 4 is computed again
    assert chain(ended(fork(first, 4))) == chain(parent)


def test_the_records_and_the_model_before_the_fork_are_those_of_the_run(parent: RunFolder) -> None:
    made = ended(fork(parent, 3, ["compute.train.learning_rate=0.2"]))
    assert made.rounds()[:3] == parent.rounds()[:3]
    assert [one for one in made.clients() if one["round"] < 4] == [
        one for one in parent.clients() if one["round"] < 4
    ]
    assert all(a != b for a, b in zip(models(made)[3:], models(parent)[3:], strict=True))


@pytest.mark.parametrize("name", SOME)
def test_a_run_can_take_up_and_lay_down_every_algorithm(
    name: str, averaging: RunFolder, tmp_path: Path
) -> None:
    changed = [f"logic={json.dumps(LOGIC[name])}"]
    if name in HOLD_BACK:
        with pytest.raises(FedmxError, match="takes samples out before the data are divided"):
            fork(averaging, 1, changed)
        return
    taken_up = ended(fork(averaging, 1, changed))
    for folder in (taken_up, ended(fork(taken_up, 2, ["logic={}"]))):
        assert [one["round"] for one in folder.rounds()] == [1, 2, 3]
        fates = {one["status"] for one in folder.clients()}
        assert fates <= {"accepted", "declined", "not-selected"}, list(folder.clients())


def test_the_checkpoint_that_a_fork_begins_with_is_kept(parent: RunFolder) -> None:
    assert ended(fork(parent, 2, ["run.checkpoint.keep=1"])).checkpoint_rounds == [6, 2]
