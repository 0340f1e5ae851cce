"""Runs with noise that goes on over rounds: killed and resumed, forked, deployed and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmx import Experiment, ExperimentError, RunFolder, simulate
from fedmx.history import fork, replay
from fedmx.privacy.accounting import epsilon_of
from layers.logic.core.privacy import Mechanism
from tests.fedmx.command_line import fedmx
from tests.fedmx.privacy import test_private_runs
from tests.fedmx.recorded_runs import record
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)
PRIVACY = {"name": "dp-ftrl", "clip": 0.5, "delta": 1e-2, "noise": 1.1, "restart": 4}
LOGIC = {**test_private_runs.TREE["logic"], "selector": {"name": "cyclic", "period": 3}}
# After each round: the sum of squares over the nodes of the client that costs most. In rounds 1 and
# 4 it is in two nodes each, and twice in the node of all four rounds.
RELEASES = [1, 2, 2, 8, 8, 8, 9]


def experiment(**changed: Any) -> Experiment:
    return test_private_runs.experiment(
        **{"privacy": PRIVACY, "logic": LOGIC, "rounds": 6, **changed}
    )


def spent(rounds: int, before: int = 0) -> float:
    return epsilon_of([(Mechanism(1.1, 1.0), before + RELEASES[rounds - 1])], 1e-2)


def test_a_run_that_was_killed_goes_on_in_the_same_tree_and_with_the_same_account() -> None:
    with simulate(experiment()) as simulation:
        rounds = iter(simulation)
        kept = [(next(rounds), simulation.checkpoint())[1] for _ in range(5)][2]
        list(rounds)
        expected = simulation.weights.tobytes()
    with simulate(experiment(executor={"processes": 2})) as simulation:
        simulation.restore(kept)
        assert [one.epsilon for one in simulation] == [spent(4), spent(5), spent(6)]
        assert simulation.weights.tobytes() == expected


def test_a_budget_gives_the_noise_and_ends_the_run_with_the_last_model_within_it() -> None:
    budget = {**PRIVACY, "noise": None, "epsilon": 3.0}
    with simulate(experiment(privacy=budget)) as simulation:
        told = [one.epsilon for one in simulation]
        assert len(told) == 6
        assert 2.99 < told[-1] <= 3.0
    with simulate(experiment(privacy={**PRIVACY, "epsilon": spent(3)})) as simulation:
        assert [one.epsilon for one in simulation] == [spent(1), spent(2), spent(3)]
        assert "round 4 would spend more" in simulation.reason


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return record(experiment(), tmp_path_factory.mktemp("runs"))


def test_a_run_is_shown_with_its_epsilon_and_explained(run: RunFolder) -> None:
    assert replay(run).same is True
    assert f"epsilon {spent(6):.4f}" in fedmx("status", str(run.path), cwd=run.path).out
    lines = fedmx("explain", "experiment.yaml", cwd=run.path).out.splitlines()
    assert "clipped" in lines[0]
    assert "the recorded epsilon" in lines[1]
    assert "secrecy" not in lines[2]  # everybody may know who takes part when


def test_a_fork_goes_on_in_the_tree_and_counts_what_was_released(run: RunFolder) -> None:
    made = fork(run, 5, ["compute.train.learning_rate=0.01", "rounds=7"])
    counted = f"Epsilon counts what {run.name} has released in 6 rounds, too."
    assert made.origin.note == counted
    # A client of round 6 is in the two nodes that end there, and one of round 7 is in one.
    assert [one.epsilon for one in made.rounds()] == [spent(6, 2), spent(6, 2)]
    assert replay(made.folder).same is True


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ("logic.selector.period=2", "privacy"),
        ("seed=5", "seed"),
        ("without=[1]", "privacy"),
        ("clients=5", "clients"),
        ("logic.selector=poisson", "privacy"),
    ],
)
def test_a_fork_in_another_tree_is_refused(changed: str, key: str, run: RunFolder) -> None:
    with pytest.raises(ExperimentError, match=rf"^{key}: "):
        fork(run, 3, [changed])


def test_a_deployed_run_is_killed_resumed_and_replayed(
    tmp_path: Path, certificates: Certificates
) -> None:
    given = experiment(clients=3)
    run = test_private_runs.killed_and_resumed(given, tmp_path, certificates)
    found, simulated = run.rounds(), record(given, tmp_path / "simulated").rounds()
    assert [one["epsilon"] for one in found] == [spent(n) for n in range(1, 7)]
    assert replay(run, modules=None).same is True
    assert [one["participants"] for one in found] == [one["participants"] for one in simulated]
    assert found[0]["model_sha256"] != simulated[0]["model_sha256"]  # the noise is secret
