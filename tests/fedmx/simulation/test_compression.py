"""Encoded updates and models: who has which model, how many bytes travel, what is held once."""

from __future__ import annotations

from typing import Any

import pytest

from fedmx import Experiment, Round, Server, simulate
from fedmx.run.checkpoint import encode_tree as encode
from layers.logic import PRESETS
from tests.logic.given_updates import Witness

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
        "logic": {"selector": {"name": "uniform", "count": 3}, "hooks": list(hooks)},
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
    rounds = run(simulate(experiment(rounds=3, logic={"preset": "stc", "selector": everybody})))
    for direction in ("up_bytes", "down_bytes"):
        assert 45 < 8 * 4 * PARAMETERS / getattr(rounds[-1], direction) < 55.6


def test_every_compressing_preset_has_a_name_that_an_experiment_file_can_use() -> None:
    for name in ("dgc", "quantised", "selective-sgd", "signsgd", "stc", "top-k"):
        assert name in PRESETS
        simulate(experiment(logic={"preset": name}))


def test_clients_that_have_the_same_model_hold_it_once_in_memory_and_in_a_checkpoint() -> None:
    everybody = {"name": "uniform", "count": 8}
    simulation = simulate(experiment(rounds=1, logic={"preset": "stc", "selector": everybody}))
    run(simulation)
    tree = simulation.checkpoint()
    models = [
        kept["pending"]["memory"]["0:Stc"]["model"] for kept in tree["clients"]["ledgers"].values()
    ]
    assert len(models) == 8
    assert len({model.__array_interface__["data"][0] for model in models}) == 1
    _, arrays = encode(tree)
    vectors = [array for array in arrays.values() if array.shape == (PARAMETERS,)]
    # A residual a client, and on the server the model, its residual and what the clients hold.
    assert len(vectors) == 8 + 3
