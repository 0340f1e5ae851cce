"""Every hook that keeps something on the server, those of the examples included."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layers.logic import HOOKS, Hook, Logic, ServerState, Training, run_round
from layers.logic.aggregators.mean import Mean
from layers.logic.core.declaration import Trait
from layers.logic.core.hook import Facilities
from layers.logic.round.pipeline import removed
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import Quadratic, bowls

EXAMPLES = Path(__file__).parents[3] / "examples"
EVERYBODY = (0, 1, 2, 3)

GIVEN: Mapping[str, Mapping[str, Any]] = {
    "clip": {"norm": 100.0},
    "fedadagrad": {"server_learning_rate": 0.3},
    "fedadam": {"server_learning_rate": 0.05},
    "fedprox": {"mu": 0.1},
    "fedyogi": {"server_learning_rate": 0.05},
    "quantise": {"down": True},
    "selective-sgd": {"upload": 1.0, "clip": None},
    "top-k": {"p": 0.5, "p_down": 0.5},
    "stc": {"p_up": 0.5},
    "dgc": {"p": 0.5, "warmup": 0},
}


KEEPING = (
    *("dgc", "fedadagrad", "fedadam", "fedavgm", "fedyogi", "quantise", "scaffold"),
    *("selective-sgd", "sign-sgd", "stc", "top-k", "own_codec:BFloat16", "own_correction:FedDyn"),
)
NOT_HERE = {"fedshare", "rebalance"}  # they work on samples, and keep nothing on the server


def of_example(module: str, name: str) -> Callable[[], Hook]:
    def make() -> Hook:
        hook: Hook = getattr(importlib.import_module(module), name)()
        return hook

    return make


MADE: dict[str, Callable[[], Hook]] = {
    **{
        name: lambda hook=hook, name=name: hook(**GIVEN.get(name, {}))  # type: ignore[misc]
        for name, hook in HOOKS.items()
    },
    "own_codec:BFloat16": of_example("own_codec", "BFloat16"),
    "own_correction:FedDyn": of_example("own_correction", "FedDyn"),
    "own_hook:EightBit": of_example("own_hook", "EightBit"),
}


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def four() -> dict[int, Quadratic]:
    """Clients whose curvatures and best models differ, so that local steps drift apart."""
    return {
        client: replace(data, A=np.diag([1.0, 3.0, 2.0, 0.5][client] * np.ones(3)), n=10)
        for client, data in bowls(4).items()
    }


CLIENTS = four()


def logic_of(name: str, **changed: Any) -> Logic:
    settings = {"training": Training(steps=5, learning_rate=0.05), "min_updates": 0, "seed": 7}
    return a_logic(
        alone(*EVERYBODY),
        aggregator=Mean("uniform"),
        hooks=[MADE[name]()],
        clients=len(EVERYBODY),
        facilities=Facilities(auxiliary=lambda weights, buffers, training, seed: weights + 1),
        **settings,
        **changed,
    )


def after(rounds: int, name: str) -> tuple[ServerState, MemoryCarrier]:
    logic = logic_of(name)
    peers = MemoryCarrier(logic, CLIENTS)
    return run_rounds(rounds, a_state(logic), peers)[0], peers


def reach_of(name: str) -> float:
    """Return how far apart two ends at one point may be: codecs with loss stay in motion."""
    provides, follows = MADE[name]().provides, MADE[name]().follows
    return 0.03 if Trait.LOSSY in provides | follows else 2e-3


def mean_of(rounds: int, state: ServerState, peers: MemoryCarrier) -> np.ndarray:
    """Return the mean of the models after each of so many rounds: codecs move about a point."""
    total = np.zeros(state.weights.size)
    for _ in range(rounds):
        state, _ = run_round(state, peers, peers.logic)
        total += state.weights
    return total / rounds


@pytest.mark.parametrize("name", sorted({*MADE} - NOT_HERE))
def test_only_these_keep_something_on_the_server(name) -> None:
    state, _ = after(2, name)
    assert bool(state.memory) == (name in KEEPING)


@pytest.mark.parametrize("name", sorted({*MADE} - NOT_HERE))
def test_a_round_without_accepted_updates_leaves_the_model_as_it_is(name) -> None:
    state, peers = after(3, name)
    peers.lost = EVERYBODY
    for _ in range(2):
        next, report = run_round(state, peers, peers.logic)
        assert not report.of("accepted")
        assert same_bits(next.weights, state.weights)
        state = next


@pytest.mark.parametrize("name", KEEPING)
def test_a_lost_client_memory_does_not_move_the_point_of_convergence(name) -> None:
    state, peers = after(3, name)
    before = mean_of(60, run_rounds(60, state, peers)[0], peers)
    state, peers = after(3, name)
    del peers.ledgers[1]
    found = mean_of(60, run_rounds(60, state, peers)[0], peers)
    assert np.linalg.norm(found - before) < reach_of(name)


@pytest.mark.parametrize("name", KEEPING)
def test_a_client_that_takes_part_no_more_does_not_move_the_point_of_convergence(name) -> None:
    others = tuple(client for client in EVERYBODY if client != 1)

    def go_on(state: ServerState, peers: MemoryCarrier) -> np.ndarray:
        logic = replace(peers.logic, selector=alone(*others), clients=len(others))
        peers = replace(peers, logic=logic)
        return mean_of(60, run_rounds(60, removed(logic, state, [1]), peers)[0], peers)

    state, peers = after(3, name)
    found = go_on(state, peers)
    fresh = MemoryCarrier(peers.logic, CLIENTS)
    assert np.linalg.norm(found - go_on(a_state(peers.logic), fresh)) < reach_of(name)


@pytest.mark.parametrize("name", sorted({*MADE} - NOT_HERE))
def test_a_hook_that_uses_the_number_of_clients_says_so(name) -> None:
    """Without the trait a fork without a client would take earlier rounds as those without it."""

    def ended(clients: int) -> np.ndarray:
        logic = replace(logic_of(name), clients=clients)
        state, _ = run_rounds(4, a_state(logic), MemoryCarrier(logic, CLIENTS))
        return state.weights

    uses = not same_bits(ended(4), ended(8))
    assert uses == MADE[name]().counts_clients
