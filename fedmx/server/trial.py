"""A trial: whether a model can be trained, on samples of the server."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from layers.compute.data.dataset import Samples
from layers.compute.engines.engine import Compute
from layers.logic import Training

MOST_SAMPLES = 1000
MOST_STEPS = 200


def trains(
    compute: Compute, weights: np.ndarray, buffers: np.ndarray, training: Training, seed: int
) -> bool:
    """Return whether the loss and the weights are finite after training as a client does.

    Args:
        compute: the engine and the samples; the first 1000 are used.
        weights: float32 (d,), the model.
        buffers: float32 (b,), its non-trainable state.
        training: how clients train; at most 200 steps are taken.
        seed: seed of every random draw.
    """
    samples, engine = compute.samples, compute.engine
    few = Samples(samples.x[:MOST_SAMPLES], samples.y[:MOST_SAMPLES])
    steps = min(max(training.steps_over(len(few)), 1), MOST_STEPS)
    plan = dataclasses.replace(training, steps=steps, loss="running")
    engine.load(weights, buffers)
    report = engine.train(few, plan, seed, loss=engine.loss_alone)
    return math.isfinite(report.loss) and bool(np.isfinite(engine.weights).all())
