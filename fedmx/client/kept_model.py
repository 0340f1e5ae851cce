"""The models that a client keeps: the newest one that it evaluated, and the best on its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.log import Log
from fedmx.run import RunError, export_weights
from layers.compute.engines.engine import Compute
from layers.logic import Question

log = Log("fedmx.client")


@dataclass
class KeptModel:
    """Writes the models that a server lets this client evaluate.

    Attributes:
        path: the file of the newest model; the best one by the first metric is beside it, with
            `-best` after its name.
    """

    path: Path

    def __post_init__(self) -> None:
        self._best: float | None = None

    def keep(self, question: Question, sums: Mapping[str, Any], compute: Compute) -> None:
        """Write the model of a question, and once more if it is the best on this client's samples.

        A file that cannot be written is a warning: the run goes on.
        """
        paths = [self.path]
        metric = compute.evaluator.metrics[0]
        value = compute.evaluator.total([sums]).get(metric.key) if sums else None
        if isinstance(value, float):
            gain = value if metric.better == "higher" else -value
            if self._best is None or gain > self._best:
                self._best = gain
                paths.append(self.path.with_stem(f"{self.path.stem}-best"))
        layout = [*compute.engine.layout, *compute.engine.buffers_layout]
        vector = np.concatenate([question.weights, question.buffers])
        try:
            for path in paths:
                export_weights(path, [(one.name, one.shape) for one in layout], vector)
        except RunError as error:
            log.warning("model_not_kept", "the model is not kept: {error}", error=str(error))
