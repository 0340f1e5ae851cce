"""SHA-256 of what a short training ends in, for models whose bits are easily lost."""

from __future__ import annotations

import hashlib
from typing import Any

from layers.compute.engines.mxnet.engine import MXNetEngine
from layers.compute.engines.mxnet.models import build_model
from tests.compute.engines.toys import batchnorm, dropout, plan, samples

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
