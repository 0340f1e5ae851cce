"""What does not fit a server is refused before its first round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedmx import Experiment, ExperimentError, FedmxError, serve, simulate
from tests.fedmx.recorded_runs import TREE


def experiment(**compute: Any) -> Experiment:
    return Experiment(**{**TREE, "compute": {**TREE["compute"], **compute}, "run": {}})


def test_a_deployed_server_evaluates_no_personal_models() -> None:
    with pytest.raises(ExperimentError, match=r"^compute\.evaluate\.personal: a deployed server"):
        serve(experiment(evaluate={"personal": True}), "one")


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
