"""Optimisers step as those of PyTorch, without memory, and go on from a kept state."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from layers.compute.engines.architectures import ARCHITECTURES
from layers.compute.engines.numpy.engine import NumpyEngine
from layers.compute.optimisers import OPTIMISERS
from layers.compute.optimisers.optimiser import Descent
from tests.compute.engines.training import plan, samples

SIZE, STEPS, RATE = 1000, 50, 0.01
PLANS = [(0.0, 0.0), (0.0, 0.1), (0.9, 0.1)]  # momentum, weight decay
CASES = [
    pytest.param(name, *plan, id=f"{name}-{'-'.join(map(str, plan))}")
    for name, optimiser in OPTIMISERS.items()
    for plan in PLANS
    if optimiser.has_momentum or not plan[0]
]
IN_TORCH = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad"}
IN_TORCH["rmsprop"] = "RMSprop"


def gradients(steps: int = STEPS) -> np.ndarray:
    rng = np.random.default_rng(7)
    values = rng.normal(size=(steps, SIZE)).astype(np.float32)
    values[:, :10] = 0  # as of weights that the loss does not depend on
    return values


def descent(
    name: str, momentum: float, decay: float, kept: Mapping[str, Any] = {}, **settings: Any
) -> Descent:
    return Descent(OPTIMISERS[name](**settings), SIZE, RATE, momentum, decay, kept)


def after(steps: Descent, weights: np.ndarray, given: np.ndarray) -> np.ndarray:
    for gradient in given.copy():
        steps.step(weights, gradient)
    return weights


@pytest.mark.needs_torch
@pytest.mark.parametrize(("name", "momentum", "decay"), CASES)
def test_fifty_steps_are_those_of_pytorch(name: str, momentum: float, decay: float) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: see .ci/torch")
    start = np.random.default_rng(1).normal(size=SIZE).astype(np.float32)
    twin = torch.nn.Parameter(torch.from_numpy(start.copy()))
    has = {"momentum": momentum} if OPTIMISERS[name].has_momentum else {}
    optimiser = getattr(torch.optim, IN_TORCH[name])([twin], lr=RATE, weight_decay=decay, **has)
    for gradient in gradients():
        twin.grad = torch.from_numpy(gradient.copy())
        optimiser.step()
    found = after(descent(name, momentum, decay), start, gradients())
    assert found == pytest.approx(twin.detach().numpy(), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("name", "momentum", "decay"), CASES)
def test_a_kept_state_goes_on_as_one_training(name: str, momentum: float, decay: float) -> None:
    whole = after(descent(name, momentum, decay), np.ones(SIZE, np.float32), gradients())
    first = descent(name, momentum, decay, state="keep")
    weights = after(first, np.ones(SIZE, np.float32), gradients()[:20])
    kept = {key: array.copy() for key, array in first.kept.items()}
    for array in kept.values():
        array.setflags(write=False)  # as those of a client's memory
    second = descent(name, momentum, decay, kept, state="keep")
    assert after(second, weights, gradients()[20:]).tobytes() == whole.tobytes()
    assert descent(name, momentum, decay).kept == {}, "by default the state is reset"


@pytest.mark.parametrize(("name", "momentum", "decay"), CASES)
def test_a_step_allocates_no_vector(name: str, momentum: float, decay: float) -> None:
    steps, weights, given = descent(name, momentum, decay), np.ones(SIZE, np.float32), gradients(3)
    steps.step(weights, given[0])
    tracemalloc.start()
    for gradient in given[1:]:
        steps.step(weights, gradient)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < weights.nbytes


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_hook_changes_the_gradient_before_the_optimiser_and_its_decay(name: str) -> None:
    engine = NumpyEngine(ARCHITECTURES["logistic"], (6,), 10, seed=3)
    engine.optimiser = OPTIMISERS[name]()
    before = engine.weights.copy()

    def without(gradient: np.ndarray, weights: np.ndarray) -> None:
        gradient[:] = 0

    data = samples(20, (6,), 10)
    engine.train(data, plan(momentum=0.9 * engine.optimiser.has_momentum), 1, without)
    assert engine.weights.tobytes() == before.tobytes()
    engine.train(data, plan(weight_decay=0.1, learning_rate=1e-3), 1, without)
    assert np.abs(engine.weights).sum() < np.abs(before).sum()


def test_the_state_of_another_optimiser_is_left_out() -> None:
    other = descent("adagrad", 0.0, 0.0, state="keep").kept
    new = after(descent("adam", 0.0, 0.0), np.ones(SIZE, np.float32), gradients())
    given = after(descent("adam", 0.0, 0.0, other), np.ones(SIZE, np.float32), gradients())
    assert given.tobytes() == new.tobytes()
