"""Encoded updates and models end in the same bits in simulation, resumed and over sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fedmx import Client, Experiment, FedmxError, Round, Server, join, serve, simulate
from layers.logic import HOOKS, PRESETS
from tests.logic.given_updates import Witness

UP = ["dgc", "quantise", "selective-sgd", "sign-sgd", "stc", "top-k"]
PARAMETERS = 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10  # of the 2NN


def experiment(*hooks: Any, **changed: Any) -> Experiment:
    tree: dict[str, Any] = {
        "rounds": 6,
        "clients": 8,
        "compute": {
            "model": "2nn",
            "data": "digits",
            "normalise": {"scale": 16},
            "evaluate": {"every": 6},
            "train": {"batch_size": 20},
        },
        "logic": {"select": {"name": "uniform", "count": 3}, "hooks": list(hooks)},
        "network": {"address": "127.0.0.1:0", "heartbeat_s": 30},
    }
    return Experiment(**{**tree, **changed})


def run(simulation: Server) -> list[Round]:
    with simulation:
        return list(simulation)


@pytest.mark.parametrize("hook", ["dgc", "sign-sgd", "stc", {"name": "top-k", "p_down": 0.1}])
def test_whoever_takes_part_trains_from_exactly_the_servers_model(hook) -> None:
    witness = Witness()
    rounds = run(simulate(experiment(witness, hook)))
    assert len(witness.models) == 18
    for sent, received in witness.models:
        assert sent.tobytes() == received.tobytes()
    dense = 3 * 4 * PARAMETERS
    assert rounds[0].down_bytes > dense, "everybody is new"
    assert rounds[-1].down_bytes < dense


def test_bytes_on_the_wire_shrink_as_the_mathematics_says() -> None:
    plain = run(simulate(experiment(rounds=1)))
    coded = run(simulate(experiment("stc", rounds=1)))
    assert plain[0].up_bytes > 3 * 4 * PARAMETERS
    assert 45 < 3 * 4 * PARAMETERS / coded[0].up_bytes < 55.6


def test_every_round_up_and_down_is_a_fiftieth_once_all_are_there() -> None:
    everybody = {"name": "uniform", "count": 8}
    rounds = run(simulate(experiment(rounds=3, logic={"preset": "stc", "select": everybody})))
    for direction in ("up_bytes", "down_bytes"):
        assert 45 < 8 * 4 * PARAMETERS / getattr(rounds[-1], direction) < 55.6


@pytest.mark.parametrize("hook", UP)
def test_a_resumed_run_ends_in_the_same_bits(hook) -> None:
    straight = simulate(experiment(hook))
    expected = run(straight)
    first = simulate(experiment(hook))
    with first:
        rounds = first.rounds()
        for _ in range(3):
            next(rounds)
        checkpoint = first.checkpoint()
    second = simulate(experiment(hook))
    second.restore(checkpoint)
    rest = run(second)
    assert second.weights.tobytes() == straight.weights.tobytes()
    for one, other in zip(rest, expected[3:], strict=True):
        assert (one.up_bytes, one.down_bytes) == (other.up_bytes, other.down_bytes)


def test_every_compressing_preset_has_a_name_that_an_experiment_file_can_use() -> None:
    for name in ("dgc", "quantised", "selective-sgd", "signsgd", "stc", "top-k"):
        assert name in PRESETS
        simulate(experiment(logic={"preset": name}))
    assert set(UP) < set(HOOKS)


class Deployment:
    """A server, and clients each in a thread of its own that can be cut off and come back."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self._running: dict[int, tuple[Client, threading.Thread]] = {}

    def start(self, client: int, memory: str) -> None:
        address = self.server._clients.address  # type: ignore[attr-defined]
        one = join(address, client, memory=self.folder / memory)
        thread = threading.Thread(target=self._work, args=[one], daemon=True)
        self._running[client] = one, thread
        thread.start()

    def cut(self, client: int) -> None:
        one, thread = self._running.pop(client)
        one.network.close()
        thread.join(60)
        assert not thread.is_alive()

    def join(self) -> None:
        for client in list(self._running):
            _, thread = self._running.pop(client)
            thread.join(60)
            assert not thread.is_alive()

    @staticmethod
    def _work(client: Client) -> None:
        with suppress(FedmxError), client:  # it is cut off by the test
            client.run()


@contextmanager
def deployed(what: Experiment, folder: Path) -> Iterator[Deployment]:
    server = serve(what, "run")
    with server:
        deployment = Deployment(server, folder)
        for client in range(what.clients):
            deployment.start(client, f"{client}")
        yield deployment
        deployment.join()


def all_of_three(*hooks: Any) -> Experiment:
    logic = {"select": {"name": "uniform", "count": 3}, "hooks": list(hooks)}
    return experiment(clients=3, rounds=4, logic=logic)


@pytest.mark.parametrize("hook", UP)
def test_over_sockets_it_ends_in_the_same_bits_as_in_simulation(hook, tmp_path) -> None:
    what = all_of_three(hook)
    simulated = simulate(what)
    expected = run(simulated)
    with deployed(what, tmp_path) as deployment:
        rounds = list(deployment.server)
    assert deployment.server.weights.tobytes() == simulated.weights.tobytes()
    for one, other in zip(rounds, expected, strict=True):
        assert one.up_bytes == other.up_bytes
        assert one.down_bytes == other.down_bytes


def test_a_client_that_is_started_again_with_its_memory_goes_on_in_the_same_bits(tmp_path) -> None:
    what = all_of_three("stc")
    simulated = simulate(what)
    expected = run(simulated)
    with deployed(what, tmp_path) as deployment:
        rounds = []
        for round in deployment.server:
            rounds.append(round)
            if round.round == 2:
                deployment.cut(1)
                deployment.start(1, "1")
    assert deployment.server.weights.tobytes() == simulated.weights.tobytes()
    assert [one.down_bytes for one in rounds] == [one.down_bytes for one in expected]


def test_a_client_that_is_started_again_without_memory_gets_the_model(tmp_path) -> None:
    with deployed(all_of_three("stc"), tmp_path) as deployment:
        rounds = []
        for round in deployment.server:
            rounds.append(round)
            if round.round == 2:
                deployment.cut(1)
                deployment.start(1, "elsewhere")
    assert all(round.participants == (0, 1, 2) for round in rounds)
    down = [
        {client.client: client.traffic.down_bytes for client in round.report.clients}
        for round in rounds
    ]
    dense = 4 * PARAMETERS
    assert [{k: got > dense for k, got in one.items()} for one in down] == [
        {0: True, 1: True, 2: True},
        {0: False, 1: False, 2: False},
        {0: False, 1: True, 2: False},
        {0: False, 1: False, 2: False},
    ]
