"""What does not fit a server is refused before its first round."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fedmx import Experiment, ExperimentError, FedmxError, serve, simulate
from tests.fedmx.recorded_runs import TREE


def experiment(**compute: Any) -> Experiment:
    return Experiment(**{**TREE, "compute": {**TREE["compute"], **compute}, "run": {}})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"compute.evaluate.personal": True}, "compute.evaluate.personal"),
        ({"compute.evaluate.per_client": True}, "compute.evaluate.per_client"),
        (
            {"compute.evaluate.per_client": True, "stop.client_accuracy": 0.8},
            "stop.client_accuracy, compute.evaluate.per_client",
        ),
    ],
    ids=["personal", "per_client", "stop"],
)
def test_a_deployed_server_measures_nothing_on_samples_that_only_its_clients_have(
    changed: dict[str, Any], named: str
) -> None:
    given = experiment().with_overrides([f"{key}={value}" for key, value in changed.items()])
    with pytest.raises(ExperimentError, match=f"^{re.escape(named)}: a deployed server"):
        serve(given, "one")


def test_a_back_door_needs_samples_with_a_place_for_its_trigger() -> None:
    compute = {"model": "logistic", "data": {"name": "blobs", "tests": 50}}
    attack = {"name": "back-door", "size": 100}
    given = Experiment(rounds=1, clients=2, compute=compute, attack=attack)
    with pytest.raises(ExperimentError, match=r"^attack: back-door: .* 100 x 100 pixels"):
        simulate(given)


def test_a_server_whose_logic_was_replaced_runs_no_round() -> None:
    with simulate(experiment()) as server:
        server.logic = replace(server.logic, seed=server.logic.seed + 1)
        with pytest.raises(FedmxError, match="the server's logic was replaced"):
            next(server.rounds())
        assert server.state.round == 0
