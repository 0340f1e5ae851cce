"""SHA-256 of the state after a short training, of models whose bits are easily lost."""

import hashlib
from typing import Any

import numpy as np

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from tests.compute.engines.toys import batchnorm, dropout
from tests.compute.engines.training import plan, samples

BUILDS: tuple[Any, ...] = (build_model("lenet5"), batchnorm, dropout)


def digest(build: Any, engine: MXNetEngine | None = None) -> str:
    engine = engine or MXNetEngine(build, (1, 28, 28), 10, seed=3)
    data = samples(60, (1, 28, 28), 10)
    engine.load(*engine.initial(3))
    engine.train(data, plan(batch_size=25, epochs=2, momentum=0.9, learning_rate=0.05), 7)
    ends = [
        engine.weights.tobytes(),
        engine.buffers.tobytes(),
        repr(engine.evaluate(data)).encode(),
    ]
    return hashlib.sha256(b"".join(ends)).hexdigest()


def digests() -> list[str]:
    return [digest(build) for build in BUILDS]


SHAPES = {"knapsack-cnn": (1, 28, 28), "vgg11s": (3, 32, 32), "lstm": (25,)}


def paper_digests() -> list[str]:
    digests = []
    for name, shape in SHAPES.items():
        rng = np.random.default_rng(2)
        samples = Samples(rng.integers(0, 50, (24, *shape)).astype("f"), rng.integers(0, 2, 24))
        classes = 2 if name == "lstm" else 10
        engine = MXNetEngine(build_model(name), shape, classes, seed=4)
        engine.train(samples, plan(batch_size=8, learning_rate=0.01, momentum=0.9), seed=1)
        end = engine.weights.tobytes() + repr(engine.evaluate(samples)).encode()
        digests.append(hashlib.sha256(end).hexdigest())
    return digests
