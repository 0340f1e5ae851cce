"""A trial says whether a model can be trained, in bounded time, on samples of the server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmx.server.trial import trains
from layers.compute.data.dataset import Samples
from layers.compute.engines.architectures import logistic
from layers.compute.engines.engine import Compute, TrainReport
from layers.compute.engines.numpy.engine import NumpyEngine
from layers.logic import Training


class Watched(NumpyEngine):
    """An engine that notes how it trains."""

    def __init__(self) -> None:
        super().__init__(lambda: logistic(3), (4,), 3)
        self.seen: list[tuple[Any, ...]] = []

    def train(self, samples: Any, plan: Any, seed: int, *more: Any, **named: Any) -> TrainReport:
        self.seen.append((len(samples), plan, seed))
        return super().train(samples, plan, seed, *more, **named)


def compute(number: int, spoilt: int | None = None) -> Compute:
    x = np.random.default_rng(0).normal(size=(number, 4)).astype(np.float32)
    if spoilt is not None:
        x[spoilt] = np.nan
    return Compute(Watched(), Samples(x, np.arange(number) % 3))


def trial(of: Compute, training: Training, scale: float = 1.0) -> bool:
    weights, buffers = of.engine.initial(3)
    return trains(of, weights * np.float32(scale), buffers, training, 7)


@pytest.mark.parametrize(
    ("samples", "training", "used", "steps"),
    [
        (30, Training(epochs=2, batch_size=20), 30, 4),
        (30, Training(epochs=2, batch_size=0), 30, 2),
        (5, Training(epochs=3, batch_size=20), 5, 3),
        (30, Training(steps=7, epochs=9), 30, 7),
        (30, Training(steps=0), 30, 1),
        (30, Training(steps=500), 30, 200),
        (2500, Training(epochs=1, batch_size=10), 1000, 100),
        (2500, Training(epochs=3, batch_size=10), 1000, 200),
    ],
)
def test_it_takes_at_most_200_steps_on_the_first_1000_samples(
    samples: int, training: Training, used: int, steps: int
) -> None:
    of = compute(samples)
    given = Training(**{**vars(training), "learning_rate": 0.05, "loss": "received"})
    assert trial(of, given)
    assert of.engine.seen == [  # type: ignore[attr-defined]
        (used, Training(**{**vars(given), "steps": steps, "loss": "running"}), 7)
    ]


def test_a_loss_or_weights_that_are_not_finite_fail_it() -> None:
    training = Training(epochs=1, batch_size=100)
    assert trial(compute(1001, spoilt=1000), training)
    assert not trial(compute(1001, spoilt=999), training)
    assert not trial(compute(30), training, scale=np.inf)
    assert not trial(compute(30), Training(epochs=9, learning_rate=3e38))
