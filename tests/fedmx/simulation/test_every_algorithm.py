"""Every hook, aggregator and preset: the same bits in simulation, resumed, and over mutual TLS.

Also when a client is killed between two rounds and started again, of those with memory on clients.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from fedmx import Experiment, Round, serve, simulate
from layers.logic import RoundReport
from tests.fedmx.algorithms import BY_NAME, CLIENTS, GIVEN, LOGIC, experiment
from tests.fedmx.fleet import Fleet
from tests.network.conftest import Certificates

pytestmark = pytest.mark.timeout(300)  # many processes on a busy machine

WITH_MEMORY = (
    *("hook dgc", "hook quantise", "hook scaffold", "hook selective-sgd", "hook sign-sgd"),
    *("hook stc", "hook top-k", "several at once", "several passes"),
)
# Where LOGIC's settings move the model too little or too far for three rounds to show learning.
STC = {"name": "stc", "p_up": 0.3, "p_down": 0.3}
LEARNING: dict[str, dict[str, Any]] = {
    "hook fedadagrad": {"hooks": [{"name": "fedadagrad", "server_learning_rate": 0.01}]},
    "hook selective-sgd": {"hooks": [{"name": "selective-sgd", "download": 0.5, "clip": 0.1}]},
    "aggregator q-fedavg": {"aggregator": {"name": "q-fedavg", "q": 0.1}},
    "preset fedadagrad": {
        "preset": {"name": "fedadagrad", "fraction": 0.75, "server_learning_rate": 0.01}
    },
    "preset lg-fedavg": {"preset": {"name": "lg-fedavg", "fraction": 0.75}, "own": ["1.*"]},
    "preset q-fedavg": {"preset": {"name": "q-fedavg", "fraction": 0.75, "q": 0.1}},
    "preset selective-sgd": {"preset": {"name": "selective-sgd", "clip": 0.1}},
    "preset selective-sgd with noise": {
        "preset": {
            **{"name": "selective-sgd", "upload": 0.5, "choice": "random"},
            **{"clip": 0.1, "epsilon": 1e7},
        }
    },
    "several at once": {"hooks": [*LOGIC["several at once"]["hooks"][:-1], STC]},
}


def learning(name: str, **changed: Any) -> Experiment:
    """The experiment of this name, trained so that it learns on any processor.

    Last bits differ between processors, and what hardly learns may do so on one and not on another.
    """
    logic = {**LOGIC[name], **LEARNING.get(name, {})}
    return experiment(logic, **changed).with_overrides(["compute.train.epochs=3"])


def deployed(name: str, certificates: Certificates) -> Experiment:
    network = {"address": "127.0.0.1:0", "heartbeat_s": 30, "tls": certificates.files}
    return learning(name, network=network)


@dataclass(frozen=True)
class Result:
    """What must be the same: everything but the time that it took."""

    weights: bytes
    reports: tuple[RoundReport, ...]
    quality: tuple[tuple[float | None, float | None], ...]

    @classmethod
    def of(cls, weights: bytes, rounds: list[Round]) -> Result:
        return cls(
            weights,
            tuple(round.report for round in rounds),
            tuple((round.accuracy, round.loss) for round in rounds),
        )


@dataclass(frozen=True)
class Simulated:
    """A simulation: its result, whether hooks on clients remember anything, a checkpoint."""

    result: Result
    remembers: bool
    after_two_rounds: dict[str, Any]


@functools.cache
def simulated(name: str) -> Simulated:
    simulation = simulate(learning(name))
    with simulation:
        rounds = list(itertools.islice(simulation, 2))
        after_two_rounds = copy.deepcopy(simulation.checkpoint())
        rounds += simulation
    ledgers: Mapping[int, Any] = simulation.checkpoint()["clients"]["ledgers"]
    kept = [ledger["pending"]["memory"] for ledger in ledgers.values()]
    return Simulated(Result.of(simulation.weights.tobytes(), rounds), any(kept), after_two_rounds)


@pytest.fixture(scope="module")
def fleet(certificates: Certificates) -> Iterator[Fleet]:
    with Fleet(CLIENTS, certificates) as fleet:
        yield fleet


def test_every_name_exists() -> None:
    for kind, settings in GIVEN.items():
        assert set(settings) <= set(BY_NAME[kind])


@pytest.mark.parametrize("name", LOGIC)
def test_it_learns_and_a_resumed_run_ends_in_the_same_bits(name) -> None:
    expected = simulated(name).result
    resumed = simulate(learning(name))
    resumed.restore(simulated(name).after_two_rounds)
    with resumed:
        (last,) = resumed
    assert resumed.weights.tobytes() == expected.weights
    assert last.report == expected.reports[-1]
    assert last.accuracy > 0.3, "a tenth would be chance"


@pytest.mark.parametrize("name", LOGIC)
def test_over_tls_it_ends_in_the_same_bits_as_in_simulation(
    name, fleet, certificates, tmp_path
) -> None:
    server = serve(deployed(name, certificates), "run")
    rounds = list(fleet.run(server, tmp_path))
    assert Result.of(server.weights.tobytes(), rounds) == simulated(name).result


def test_every_hook_with_memory_on_clients_has_one_killed() -> None:
    hooks = [name for name in LOGIC if not name.startswith("preset")]
    assert tuple(name for name in hooks if simulated(name).remembers) == WITH_MEMORY


def victim_of(expected: Result) -> int:
    """Return a client that remembers something after round 1, and needs it in round 2."""
    first, second = (set(report.of("accepted")) for report in expected.reports[:2])
    return min(first & second)


@pytest.mark.parametrize("name", [*WITH_MEMORY, "preset apfl", "preset fedrep"])
def test_a_client_that_is_killed_and_started_again_goes_on_in_the_same_bits(
    name, fleet, certificates, tmp_path
) -> None:
    expected = simulated(name).result
    victim = victim_of(expected)
    server = serve(deployed(name, certificates), "run")
    rounds = []
    for round in fleet.run(server, tmp_path):
        rounds.append(round)
        if round.round == 1:
            assert list((tmp_path / f"{victim}").iterdir()), "its memory is in a file"
            fleet.start_again(server, victim, tmp_path / f"{victim}")
    assert Result.of(server.weights.tobytes(), rounds) == expected


def test_a_client_restarted_without_memory_gets_the_model(fleet, certificates, tmp_path) -> None:
    expected = simulated("hook stc").result
    victim = victim_of(expected)
    server = serve(deployed("hook stc", certificates), "run")
    rounds = []
    for round in fleet.run(server, tmp_path):
        rounds.append(round)
        if round.round == 1:
            fleet.start_again(server, victim, tmp_path / "elsewhere")
    assert [r.participants for r in rounds] == [r.of("accepted") for r in expected.reports]
    down = {
        client.client: (client.traffic.down_bytes, undisturbed.traffic.down_bytes)
        for client, undisturbed in zip(
            rounds[1].report.clients, expected.reports[1].clients, strict=True
        )
    }
    got, undisturbed = down.pop(victim)
    assert got > server.weights.nbytes > undisturbed
    assert all(got == undisturbed for got, undisturbed in down.values())
