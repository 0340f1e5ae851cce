"""SHA-256 of what a short training of the papers' models ends in."""

from __future__ import annotations

import hashlib

import numpy as np

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from tests.compute.engines.toys import plan

SHAPES = {"knapsack-cnn": (1, 28, 28), "vgg11s": (3, 32, 32), "lstm": (25,)}


def paper_digests() -> list[str]:
    digests = []
    for name, shape in SHAPES.items():
        rng = np.random.default_rng(2)
        x = rng.integers(0, 50, (24, *shape)).astype("f")
        samples = Samples(x, rng.integers(0, 2, 24))
        classes = 2 if name == "lstm" else 10
        engine = MXNetEngine(build_model(name), shape, classes, seed=4)
        engine.train(samples, plan(batch_size=8, learning_rate=0.01, momentum=0.9), seed=1)
        end = engine.weights.tobytes() + repr(engine.evaluate(samples)).encode()
        digests.append(hashlib.sha256(end).hexdigest())
    return digests
