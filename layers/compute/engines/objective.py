"""A loss on a model: the training graphs, and what enters them besides the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from layers.compute.engines.graphs import GraphCache, Step
from layers.compute.losses.loss import Given, Loss, Outputs

# The samples of all graphs in the cache. An epoch has a graph for its batch size, and one for the
# smaller batch at its end.
STEP_ROWS = 256


class Objective:
    """A loss on a model, with the training graphs of several batch sizes.

    Args:
        loss: the loss.
        own: the model's own loss.
        classes: how many classes, labels or values there are, or different tokens.
        arrays: the names of the loss's arrays.
        bind: returns the training graph of a batch size.
        reported: returns each sample's loss, float64 (n,), from the value of a graph's head and the
            labels.
    """

    def __init__(
        self,
        loss: Loss,
        own: Loss,
        classes: int,
        arrays: Sequence[str],
        bind: Callable[[Objective, int], Step],
        reported: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ):
        self.loss = loss
        self.reported = reported
        self.steps: GraphCache[Step] = GraphCache(lambda batch: bind(self, batch), STEP_ROWS)
        self._own = own
        self._classes = classes
        self._arrays = arrays

    def head(
        self, F: Any, outputs: Sequence[Any], label: Any, inputs: Mapping[str, Any], batch: int
    ) -> Any:
        """Return the loss's head; the arguments are those of `given`, and the number of samples."""
        return self.loss.head(F, self.given(outputs, label, inputs), batch)

    def given(self, outputs: Sequence[Any], label: Any, inputs: Mapping[str, Any]) -> Given:
        """Return what the loss gets.

        Args:
            outputs: the model's output, then those of the loss's layers.
            label: the labels.
            inputs: the other inputs, named by `reference_name` and `array_name`.
        """
        layers = self.loss.layers
        references = {
            one: Outputs(
                inputs[reference_name(one)],
                {layer: inputs[reference_name(one, layer)] for layer in layers},
            )
            for one in self.loss.references
        }
        arrays = {name: inputs[array_name(name)] for name in self._arrays}
        own = Outputs(outputs[0], dict(zip(layers, outputs[1:], strict=True)))
        return Given(own, label, references, arrays, self._classes, self._own)


def array_name(name: str) -> str:
    """Return the name of an array in the training graph."""
    return f"array:{name}"


def reference_name(reference: str, *layer: str) -> str:
    """Return the name of a reference model's outputs, or of its layer's, in the training graph."""
    return ":".join(("reference", reference, *layer))


class Feed:
    """What the training graphs of an objective read: samples, and the inputs of the loss.

    Attributes:
        labels: the targets, float32.

    Args:
        objective: the objective.
        x: the inputs, (n, ...).
        y: the targets, (n, ...).
        dtype: the dtype of the model's inputs.
        fixed: the inputs of the loss that are the same in each batch, by name.
        by_row: those with a row for each sample, (n, ...), by name.
    """

    def __init__(
        self,
        objective: Objective,
        x: np.ndarray,
        y: np.ndarray,
        dtype: str,
        fixed: Mapping[str, np.ndarray],
        by_row: Mapping[str, np.ndarray],
    ):
        self.objective = objective
        self.x, self.y = x, y
        self.labels = y.astype(np.float32)
        self._same_dtype = x.dtype == dtype
        self.fixed, self.by_row = fixed, by_row

    def run(self, rows: np.ndarray) -> Step:
        """Compute the gradient of some rows at the current weights; return the graph."""
        step = self.objective.steps[len(rows)]
        if self._same_dtype:
            self.x.take(rows, axis=0, out=step.x, mode="clip")
        else:
            step.x[...] = self.x[rows]
        self.labels.take(rows, axis=0, out=step.y, mode="clip")
        for name, into in step.inputs.items():
            if name in self.fixed:
                into[...] = self.fixed[name]
            else:
                self.by_row[name].take(rows, axis=0, out=into, mode="clip")
        step.run()
        return step
