"""A simulation of a population that nothing walks: only the cohort's data are made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Experiment, ExperimentError, simulate
from fedmx.simulation.executors.processes import ProcessBackend
from fedmx.simulation.simulated_clients import SimulatedClients
from layers.compute.data.datasets.synthetic import Blobs
from layers.logic import ClientFailed
from layers.logic.client_sizes import ClientSizes
from tests.fedmx.command_line import fedmx

MANY = 2**31 - 1  # the most that an experiment can have: no array of so many fits into the time
COHORT = 5


def experiment(clients: int = 50, rounds: int = 3, **changed: Any) -> Experiment:
    compute: dict[str, Any] = {
        "model": "2nn",
        "data": {"name": "blobs", "samples": 12, "tests": 20},
        "train": {"batch_size": 4},
    }
    tree: dict[str, Any] = {
        "rounds": rounds,
        "clients": clients,
        "compute": {**compute, **changed.pop("compute", {})},
        "logic": {"selector": {"name": "uniform", "count": COHORT}},
    }
    return Experiment.from_dict({**tree, **changed})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clients whose samples are made, in this order."""
    clients: list[int] = []
    client = Blobs.client

    def counted(self: Blobs, number: int) -> Any:
        clients.append(number)
        return client(self, number)

    monkeypatch.setattr(Blobs, "client", counted)
    return clients


@pytest.fixture
def unwalked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever walks the population, or makes an array of it, fails."""

    def refuse(self: ClientSizes) -> Iterator[int]:
        raise AssertionError("every client of the population was looked at")

    for name in ("ids", "sizes"):
        monkeypatch.setattr(ClientSizes, name, property(refuse))
    monkeypatch.setattr(ClientSizes, "__iter__", refuse)


@pytest.mark.usefixtures("unwalked")
@pytest.mark.parametrize("selector", ["uniform", "round-robin"])
def test_two_thousand_million_clients_cost_their_cohort(made: list[int], selector: str) -> None:
    logic = {"selector": {"name": selector, "count": COHORT}, "hooks": ["stc"]}
    with simulate(experiment(MANY, logic=logic)) as simulation:
        rounds = list(simulation)
        tree = simulation.checkpoint()
    selected = [client for one in rounds for client in one.participants]
    assert len(selected) == 3 * COHORT
    assert made == selected
    # What is kept of clients is kept of those who took part.
    assert set(tree["clients"]["ledgers"]) == set(selected)
    assert set(tree["server"]["last_accepted"]) == set(selected)


def test_a_resumed_run_makes_the_same_samples_again() -> None:
    with simulate(experiment(rounds=2)) as first:
        list(first)
        tree = first.checkpoint()
    with simulate(experiment(rounds=4)) as whole:
        list(whole)
    with simulate(experiment(rounds=4)) as resumed:
        resumed.restore({**tree, "reason": ""})
        assert [one.round for one in resumed] == [3, 4]
    assert resumed.weights.tobytes() == whole.weights.tobytes()


def test_workers_make_the_samples_that_one_process_makes() -> None:
    with simulate(experiment()) as serial:
        expected = [one.accuracy for one in serial]
    backend = ProcessBackend(1)
    try:
        with simulate(experiment(executor={"processes": 1}), backend) as parallel:
            assert [one.accuracy for one in parallel] == expected
    finally:
        backend.close()
    assert parallel.weights.tobytes() == serial.weights.tobytes()


OWN = """
import numpy as np


class Numbers:
    classes = 3

    def __init__(self, clients, seed, wrong=False):
        self.clients, self.seed, self.wrong = clients, seed, wrong

    def sizes(self):
        return np.arange(self.clients) % 3 + 1

    def client(self, number):
        rng = np.random.default_rng([self.seed, number])
        n = int(self.sizes()[number]) + self.wrong
        return rng.random((n, 1, 4, 4)), rng.integers(3, size=n)

    def test(self):
        rng = np.random.default_rng(self.seed)
        return rng.random((10, 1, 4, 4)), rng.integers(3, size=10)
"""


def own_file(folder: Path, settings: str = "") -> Path:
    name = f"numbers_{folder.name}"  # a module's name stands for one file in a process
    (folder / f"{name}.py").write_text(OWN)
    path = folder / "own.yaml"
    path.write_text(
        "rounds: 2\nclients: 20\nseed: 4\ncompute: {model: 2nn, data: {name: "
        f'"{name}:Numbers"{settings}}}}}\n'
    )
    return path


def test_a_class_of_the_users_own_gets_the_clients_and_a_seed(tmp_path: Path) -> None:
    given = Experiment.read(own_file(tmp_path), modules=None)
    with simulate(given) as simulation:
        rounds = list(simulation)
    samples = {one.client: one.samples for a_round in rounds for one in a_round.report.clients}
    assert samples
    assert all(number == client % 3 + 1 for client, number in samples.items())
    with simulate(given.with_overrides(["seed=5"])) as other:
        list(other)
    assert other.weights.tobytes() != simulation.weights.tobytes()


def test_samples_that_are_not_as_announced_end_the_run_with_the_client(tmp_path: Path) -> None:
    given = Experiment.read(own_file(tmp_path, ", wrong: true"), modules=None)
    with (
        pytest.raises(ClientFailed, match=r"client \d+: has \d samples .* sizes\(\) says"),
        simulate(given) as simulation,
    ):
        list(simulation)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"compute": {"partition": "shards"}}, "compute.partition: .* leave it out"),
        ({"compute": {"evaluate": {"per_client": True}}}, "compute.evaluate.per_client"),
        ({"logic": {"preset": "fedshare"}}, "assets of hooks"),
    ],
)
def test_what_needs_the_samples_of_all_clients_is_refused_at_the_start(
    changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        simulate(experiment(**changed))
    assert "\n" not in str(caught.value)
    assert re.search(reason, str(caught.value))


def test_a_selector_that_needs_all_clients_is_refused_at_the_start() -> None:
    with pytest.raises(ExperimentError, match="logic: FedSSO works with at most 15,000 clients"):
        simulate(experiment(15_001, logic={"preset": "fedsso"}))


def test_clients_by_chance_are_looked_at_once_while_nobody_comes_or_goes() -> None:
    clock = {"devices": "lognormal", "availability": {"name": "chance", "span_s": 1e6}}
    with simulate(experiment(clock=clock)) as simulation:
        populations = []
        for _ in simulation:
            assert isinstance(simulation.network, SimulatedClients)
            populations.append(simulation.network.open_round(simulation.state)[1])
    assert 0 < len(populations[0]) < 50
    assert all(one is populations[0] for one in populations)


def test_the_command_line_shows_the_labels_of_each_client(tmp_path: Path) -> None:
    done = fedmx("data", "show", "blobs", "--clients", "3", cwd=tmp_path)
    assert done.code == 0, done.err
    assert np.max([len(set(Blobs(3).client(client)[1].tolist())) for client in range(3)]) <= 2
    assert "20" in done.out
