"""What holds of the learning rate is checked for the highest one of the schedule."""

from __future__ import annotations

import pytest

from fedmx import Assembly, Experiment, ExperimentError


@pytest.mark.parametrize("preset", ["fedprox", "fednova"])
def test_a_schedule_that_overshoots_the_received_model_is_refused_before_round_1(
    preset: str,
) -> None:
    def made(gamma: float) -> Assembly:
        schedule = {"name": "step", "every": 1, "gamma": gamma}
        train = {"learning_rate": 0.1, "schedule": schedule}
        compute = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}, "train": train}
        logic = {"preset": {"name": preset, "mu": 2.0}}
        return Assembly(Experiment(rounds=3, clients=2, compute=compute, logic=logic))

    with pytest.raises(ExperimentError, match=r"learning_rate 10\.\d* times mu 2\.0 is 1 or more"):
        _ = made(10.0).logic
    assert made(2.0).logic.training_of(3).learning_rate == pytest.approx(0.4)
