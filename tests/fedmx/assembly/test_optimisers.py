"""The optimiser of an experiment: what it changes, and what it cannot be combined with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Assembly, Experiment, ExperimentError, simulate
from tests.fedmx import kinds

COMPUTE = {"model": "2nn", "data": "digits", "normalise": {"scale": 16}, "engine": "numpy"}
KEEP = {"name": "sgd", "state": "keep"}
ADAMW = {"optimiser": "adamw", "weight_decay": 0.1}
OWN = """
from dataclasses import dataclass
import numpy as np
from fedmx import Optimiser


@dataclass(frozen=True)
class SignDescent(Optimiser):
    scale: float = 1.0

    def begin(self, dimension, momentum):
        return {}

    def change(self, gradient, state, step):
        np.sign(gradient, out=gradient)
        gradient *= np.float32(self.scale * step.rate)
"""


def experiment(logic: Any, **train: Any) -> Experiment:
    compute = {**COMPUTE, "train": {"learning_rate": 0.01, "steps": 3, **train}}
    return Experiment(rounds=2, clients=2, compute=compute, logic=logic)


ALL = {"selector": {"name": "uniform", "fraction": 1.0}}


@pytest.mark.parametrize(
    ("logic", "train", "said"),
    [
        *(
            ({"preset": preset}, {"optimiser": "adam"}, f"{part} .*SGD.* adam")
            for preset, part in {
                "fednova": "FedNova",
                "scaffold": "Scaffold",
                "q-fedavg": "QFedAvg",
                "fedsso": "FedSSO",
                "per-fedavg": "PerFedAvgTrainer",
                "apfl": "ApflTrainer",
            }.items()
        ),
        ({"hooks": ["gradient-reply"]}, {"optimiser": "adagrad"}, "GradientReply .*adagrad"),
        ({"preset": "fednova"}, {"optimiser": KEEP}, "FedNova .*sgd with state: keep"),
        ({"preset": "pfedme"}, {"optimiser": KEEP}, "sgd .*keep.* PfedMeTrainer"),
        ({"preset": "fedrep"}, ADAMW, "FedRepTrainer .*adamw"),
        ({"preset": "fedbabu"}, ADAMW, "FedBabuTrainer .*adamw"),
        ({"preset": {"name": "fine-tuning", "tune": "head"}}, ADAMW, "FineTuning .*adamw"),
        ({}, {"optimiser": "adam", "momentum": 0.9}, r"compute\.train\.momentum: adam .*0\.9"),
    ],
)
def test_what_an_optimiser_cannot_be_combined_with_is_refused(
    logic: Any, train: Any, said: str
) -> None:
    with pytest.raises(ExperimentError, match=said) as caught:
        _ = Assembly(experiment(logic, **train)).logic
    assert "\n" not in str(caught.value)
    assert Assembly(experiment(logic)).logic


@pytest.mark.parametrize(
    ("logic", "train"),
    [
        ({"preset": "fedrep"}, {**ADAMW, "weight_decay": 0.0}),
        ({"preset": "fedrep"}, {**ADAMW, "optimiser": "adam"}),
        ({"preset": "ditto"}, {"optimiser": {"name": "rmsprop", "state": "keep"}, "momentum": 0.9}),
        ({"preset": "fedprox"}, {"optimiser": "adam"}),
        ({"preset": "dgc"}, {"optimiser": "adam"}),
    ],
)
def test_what_works_with_every_optimiser_is_not_refused(logic: Any, train: Any) -> None:
    assert Assembly(experiment(logic, **train)).logic


def test_a_step_in_parts_is_for_models_without_buffers(kind_folder: Path) -> None:
    compute = {**kinds.TREE["compute"], "train": {"accumulate": 2}}
    assert Assembly(kinds.experiment(kind_folder, compute=compute)).engine.accumulate == 2
    normed = {**compute, "model": "kind_models:Normed"}
    with pytest.raises(ExperimentError, match=r"compute\.train\.accumulate: .*BatchNorm.* 2"):
        _ = Assembly(kinds.experiment(kind_folder, compute=normed)).engine


def weights_after(given: Experiment) -> np.ndarray:
    with simulate(given) as server:
        for _ in server:
            pass
        return np.asarray(server.weights).copy()


def test_a_kept_state_reaches_the_next_round_of_a_client() -> None:
    reset, kept = (
        weights_after(experiment(ALL, momentum=0.9, optimiser={"name": "sgd", "state": state}))
        for state in ("reset", "keep")
    )
    assert weights_after(experiment(ALL, momentum=0.9)).tobytes() == reset.tobytes()
    assert kept.tobytes() != reset.tobytes()


def test_an_own_optimiser_is_named_and_its_settings_are_read(tmp_path: Path) -> None:
    (tmp_path / "own_optimiser.py").write_text(OWN)
    text = """
    {rounds: 1, clients: 1, logic: {selector: {name: uniform, fraction: 1.0}}, compute: {
      model: logistic, data: digits, normalise: {scale: 16}, engine: numpy, train: {steps: 1,
      learning_rate: 0.5, optimiser: {name: 'own_optimiser:SignDescent', scale: 0.5}}}}
    """
    given = Experiment.parse(text, folder=tmp_path, modules=None)
    moved = weights_after(given) - Assembly(given).engine.initial(given.seed)[0]
    assert set(np.abs(moved).round(3).tolist()) <= {0.0, 0.25}
    assert np.abs(moved).max() > 0
