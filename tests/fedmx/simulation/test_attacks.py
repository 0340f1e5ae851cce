"""Attacks in a simulation: the same bits on every executor, killed and resumed, and replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedmx import Assembly, Experiment, ExperimentError, RunFolder, serve, simulate
from fedmx.parts import Krum, SignFlip
from fedmx.report import write_report
from layers.logic import ATTACKS, LogicError
from tests.fedmx.command_line import fedmx
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)
SETTINGS: dict[str, dict[str, Any]] = {"free-rider": {"sigma": 0.1}, "back-door": {"size": 2}}
EVERYBODY = {"name": "uniform", "fraction": 1.0}
COLLUDING = ("alie", "fang-krum", "fang-trim", "inner-product", "mimic", "min-max", "min-sum")


def experiment(attack: Any, **changed: Any) -> Experiment:
    tree = {
        **{"name": "lies", "rounds": 2, "clients": 6, "attack": attack},
        "compute": {
            **{"model": "logistic", "data": "digits", "normalise": {"scale": 16}},
            "train": {"steps": 2},
        },
        "logic": {"selector": {"name": "uniform", "fraction": 0.8}, "min_updates": 3},
    }
    return Experiment.from_dict({**tree, **changed})


def attack_named(name: str) -> dict[str, Any]:
    return {"name": name, "clients": 0.34, **SETTINGS.get(name, {})}


def weights(one: Experiment) -> bytes:
    with simulate(one) as simulation:
        list(simulation)
        return simulation.weights.tobytes()


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_an_attack_changes_the_model_and_not_with_the_executor(name: str) -> None:
    lied = weights(experiment(attack_named(name)))
    assert lied != weights(experiment(None))
    assert weights(experiment(attack_named(name), executor={"processes": 2})) == lied


@pytest.mark.parametrize("name", [*COLLUDING, "free-rider"])
def test_a_run_that_was_killed_goes_on_in_the_same_bits(name: str) -> None:
    one = experiment(attack_named(name), rounds=3)
    with simulate(one) as simulation:
        rounds = iter(simulation)
        next(rounds)
        kept = simulation.checkpoint()
        list(rounds)
        expected = simulation.weights.tobytes()
    with simulate(one) as simulation:
        simulation.restore(kept)
        list(simulation)
        assert simulation.weights.tobytes() == expected


def test_colluders_see_the_tasks_of_the_round_whatever_the_clock_says() -> None:
    """Dropped and late clients were asked, too; times differ, and the lie does not."""
    from fedmx.simulation.executors.colluding import ColludingExecutor
    from layers.logic.attacks.colluding import Mimic

    seen: list[int] = []

    class Watched(Mimic):
        def collude(self, honest, malicious, rng):
            seen.append(len(honest))
            return super().collude(honest, malicious, rng)

    clock = {"devices": "lognormal", "dropout": 0.5}
    one = experiment(
        {"name": "mimic", "clients": (0, 1)}, clock=clock, rounds=3, logic={"selector": EVERYBODY}
    )
    with simulate(one) as simulation:
        executor = simulation.network._executor
        assert isinstance(executor, ColludingExecutor)
        executor._attack = Watched((0, 1))
        sent = [round.report.selected for round in simulation]
    assert seen
    assert set(seen) == {4}
    assert set(sent) == {6}


@pytest.mark.parametrize("name", ["min-max", "sign-flip", "back-door"])
def test_a_recorded_run_is_replayed_resumed_and_reported(tmp_path: Path, name: str) -> None:
    aggregator = {"name": "multi-krum", "byzantine": 0, "keep": 2}
    logic = {"selector": EVERYBODY, "aggregator": aggregator}
    one = experiment(attack_named(name), logic={**logic, "min_updates": 3})
    (tmp_path / "lies.yaml").write_text(one.to_yaml())
    result = fedmx("run", "lies.yaml", cwd=tmp_path)
    assert result.code == 0, result.err
    (run,) = (tmp_path / "runs").iterdir()
    records = [json.loads(line) for line in (run / "clients.jsonl").read_text().splitlines()]
    malicious = {one["client"] for one in records if one.get("liar")}
    assert len(malicious) == 2
    assert {one["share"] for one in records} == {0, 0.5}
    rounds = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert all(("attack_success" in line) == (name == "back-door") for line in rounds)
    write_report([RunFolder.open(run)], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "2 of the clients that were asked are liars" in page
    left_out = [
        sum(one["share"] == 0 for one in records if (one["client"] in malicious) == lie)
        for lie in (True, False)
    ]
    assert f"left out {left_out[0]} of 4 updates of liars and {left_out[1]} of 8" in page
    replayed = fedmx("replay", run, cwd=tmp_path)
    assert replayed.code == 0, replayed.err + replayed.out
    one_client = fedmx("replay", run, "--round", "2", "--client", str(min(malicious)), cwd=tmp_path)
    assert one_client.code == 0, one_client.err + one_client.out


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_a_deployment_refuses_an_attack_in_one_line_with_and_without_tls(
    name: str, certificates: Certificates
) -> None:
    for network in ({}, {"address": "127.0.0.1:0", "tls": certificates.files}):
        with pytest.raises(ExperimentError, match=r"^attack: is for simulations"):
            serve(experiment(attack_named(name), network=network), run="lies")


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ({"name": "label-flipping", "classes": 7}, "attack.classes: .* 10 labels, not 7"),
        ({"name": "back-door", "target": 10}, "attack.target: .* 0 to 9, not 10"),
        ({"name": "sign-flip", "clients": [6]}, "attack: clients must be from 0 to 5, not 6"),
    ],
)
def test_an_attack_that_does_not_fit_the_experiment_is_refused(attack, reason) -> None:
    with pytest.raises(ExperimentError, match=reason):
        Assembly(experiment(attack)).logic  # noqa: B018


@pytest.mark.parametrize(
    "logic", [{"hooks": ["top-k"]}, {"preset": "fedbuff"}, {"own": ["*bias*"]}]
)
@pytest.mark.parametrize("name", COLLUDING)
def test_colluders_are_refused_where_no_whole_updates_of_one_version_travel(name, logic) -> None:
    clock = {"devices": "lognormal"} if "preset" in logic else {}
    one = experiment(attack_named(name), logic=logic, clock=clock)
    with pytest.raises((ExperimentError, LogicError)):
        Assembly(one).logic  # noqa: B018


def test_python_gives_an_attack_as_an_object() -> None:
    logic = {"selector": EVERYBODY, "aggregator": Krum(0), "min_updates": 3}
    one = experiment(SignFlip(0.34), logic=logic)
    assert one.portable
    assert weights(one) == weights(Experiment.parse(one.to_yaml()))
    assert experiment(None).digest() == Experiment.parse(experiment(None).to_yaml()).digest()
    assert experiment(None).digest() != one.digest()
