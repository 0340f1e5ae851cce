"""The engine: one model on flat vectors. It knows neither rounds nor clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import Any, Protocol

import mxnet as mx
import numpy as np

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.batches import Batch, Batches, TrainReport
from layers.compute.engines.mxnet.execution import (
    CompiledScorer,
    CompiledStep,
    GraphCache,
    ImperativeScorer,
    ImperativeStep,
    has_random,
    put_views,
    settle_shapes,
    trace,
)
from layers.compute.engines.mxnet.parameters import (
    Definition,
    FlatVector,
    aligned,
    constant,
    draw,
    lay_out,
    parameters,
    seed_mxnet,
    trainable,
)
from layers.compute.engines.mxnet.rewriting import training_graph
from layers.compute.engines.mxnet.runtime import one_thread
from layers.compute.engines.mxnet.training import LOSSES, Loss, TrainingPlan
from layers.compute.errors import ComputeError, unknown
from layers.compute.scores import Metrics, Scores

GradientHook = Callable[[np.ndarray, np.ndarray], None]

GRADIENT_BATCH = 256  # the batch size of `MXNetEngine.gradient`
# The samples of all graphs in the caches. An epoch has a graph for its batch size, and one for the
# smaller batch at its end.
STEP_ROWS = 256
SCORER_ROWS = 1024


class SamplesLike(Protocol):
    """Inputs and labels, row by row."""

    @property
    def x(self) -> np.ndarray:
        """Inputs, (n, ...)."""

    @property
    def y(self) -> np.ndarray:
        """Labels, integers (n,)."""


class MXNetEngine:
    """A model with its trainable parameters in a float32 vector (d,), and its buffers in another.

    Buffers (b,) are state without a gradient, such as BatchNorm's running statistics. A
    `mx.gluon.Constant` is in neither vector, because it belongs to the model that `build` returns.

    Args:
        build: returns a new block; called more than once.
        example_shape: the shape of one input, without the batch.
        classes: how many classes there are.
        example_dtype: the dtype of the model's inputs.
        seed: for the initial weights, which are loaded.
        loss: a name in `LOSSES`; None: the block's attribute `loss`, or softmax without one.

    Raises:
        ComputeError: the block does not take such inputs, its outputs do not fit the loss, it has
            no trainable parameter, or the loss is unknown.
    """

    def __init__(
        self,
        build: Callable[[], Any],
        example_shape: tuple[int, ...],
        classes: int,
        *,
        example_dtype: str = "float32",
        seed: int = 0,
        loss: str | None = None,
    ):
        self.example_shape = tuple(example_shape)
        self.example_dtype = example_dtype
        self._seed = seed
        self._build = build
        self._one_thread = one_thread()
        with self._one_thread:  # building a model with constants already runs operators
            self._block = build()
        if not isinstance(self._block, mx.gluon.Block):
            raise ComputeError(f"the model is a {type(self._block).__name__}, not a gluon Block")
        own = getattr(self._block, "loss", None)
        loss = loss or (own if isinstance(own, str) else "softmax")
        if loss not in LOSSES:
            raise ComputeError(unknown("loss", loss, LOSSES))
        self.loss: Loss = LOSSES[loss](classes)
        with self._one_thread:
            self._output = self._trace()
        self._random = self._output is None or has_random(self._output)
        named = parameters(self._block)
        self._parameters = {n: p for n, p in named if not constant(p)}
        self._constants = {n: mx.nd.array(p.value) for n, p in named if constant(p)}
        self._names = {parameter.name: name for name, parameter in named}
        self.layout = lay_out((n, p.shape) for n, p in named if trainable(p))
        self.buffers_layout = lay_out(
            (n, p.shape) for n, p in self._parameters.items() if not trainable(p)
        )
        if not self.layout:
            raise ComputeError("the model has no trainable parameter")
        self._weights = FlatVector(self.layout)
        self._buffers = FlatVector(self.buffers_layout)
        self._gradient = FlatVector(self.layout)
        if self._output is None:
            put_views(self._block, self._weights, self._buffers, self._gradient)
        self._steps = GraphCache(self._bind_step, STEP_ROWS)
        self._scorers = GraphCache(self._bind_scorer, SCORER_ROWS)
        self.load(*self.initial(seed))

    @property
    def weights(self) -> np.ndarray:
        """The current weights, float32 (d,), as a read-only view."""
        return self._weights.readonly

    @property
    def buffers(self) -> np.ndarray:
        """The current buffers, float32 (b,), as a read-only view."""
        return self._buffers.readonly

    @property
    def definition(self) -> Definition:
        """The model without its weights, for export."""
        constants = {name: value.asnumpy() for name, value in self._constants.items()}
        shapes = {tensor.name: tensor.shape for tensor in (*self.layout, *self.buffers_layout)}
        return Definition(
            self._output,
            self._names,
            {**shapes, **{name: value.shape for name, value in constants.items()}},
            constants,
            self.example_shape,
            self.loss.outputs,
        )

    def initial(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return initial weights (d,) and buffers (b,), float32, equal in every process.

        A parameter with an initialiser is drawn by it. Others follow Gluon's rules, except that
        weights are drawn by Xavier (Glorot & Bengio 2010).
        """
        values = {
            name: draw(parameter, name, seed, index)
            for index, (name, parameter) in enumerate(self._parameters.items())
        }
        empty = [np.zeros(0, np.float32)]
        return (
            np.concatenate([values[t.name].reshape(-1) for t in self.layout]),
            np.concatenate(empty + [values[t.name].reshape(-1) for t in self.buffers_layout]),
        )

    def load(self, weights: np.ndarray, buffers: np.ndarray) -> None:
        """Load a copy of weights (d,) and buffers (b,).

        Raises:
            ComputeError: one of them has another length; nothing is loaded.
        """
        for what, given, own in (
            ("weights", weights, self._weights),
            ("buffers", buffers, self._buffers),
        ):
            if np.shape(given) != own.array.shape:
                raise ComputeError(
                    f"{what} have shape {np.shape(given)}, but those of the model have "
                    f"{own.array.shape}"
                )
        self._weights.array[...] = weights
        self._buffers.array[...] = buffers

    def batches(self, samples: SamplesLike, plan: TrainingPlan, seed: int) -> Batches:
        """Return the mini-batches of a local training; `step` takes its steps.

        Args:
            samples: the training samples.
            plan: epochs or steps, batch size, learning rate, momentum, weight decay.
            seed: for shuffling and dropout.

        Raises:
            ComputeError: the samples do not fit the model, or a value of the plan is not allowed.
        """
        x, y = self._check(samples)
        size = self._weights.array.size
        return Batches(x, y, plan, seed, self.loss, size, lambda: self._draw_from(seed))

    def step(self, batch: Batch, correct: GradientHook | None = None) -> None:
        """Take a step of SGD from the loaded weights, with the velocity of the batch's training.

        Args:
            batch: a mini-batch of `batches`.
            correct: called as `correct(g, w)`, before weight decay and momentum. `g` (d,) is the
                mini-batch's mean gradient, which may be changed in place; `w` (d,) are the weights,
                read-only.
        """
        of, one = batch.batches, self._one_thread
        with one.turn if one.thread.limits.held else one:  # a lock alone is faster
            step = self._run_step(of.x, of.labels, batch.rows)
            of.reported.add(step.probabilities, batch.rows)
            if correct is not None:
                correct(self._gradient.array, self._weights.readonly)
            of.sgd.step(self._weights.array, self._gradient.array)

    def batch_gradient(self, batch: Batch) -> np.ndarray:
        """Return a mini-batch's mean gradient at the loaded weights, float32 (d,).

        It is a view, which the next call of the engine overwrites. The weights do not change, and
        BatchNorm's running statistics change as in a step. No report counts it.

        Args:
            batch: a mini-batch of `batches`.
        """
        with self._one_thread:
            self._run_step(batch.batches.x, batch.batches.labels, batch.rows)
        return self._gradient.array

    def train(
        self,
        samples: SamplesLike,
        plan: TrainingPlan,
        seed: int,
        correct: GradientHook | None = None,
    ) -> TrainReport:
        """Take a step for each of the `batches` of a local training, and return its report."""
        batches = self.batches(samples, plan, seed)
        for batch in batches:
            self.step(batch, correct)
        return batches.report()

    def gradient(self, samples: SamplesLike) -> np.ndarray:
        """Return the mean gradient, float32 (d,), of all samples at the loaded weights.

        Weights and buffers do not change. A large set is computed in batches of 256, weighted by
        their sizes; BatchNorm normalises each batch by its own statistics, as in training.

        Raises:
            ComputeError: the samples do not fit the model.
        """
        x, y = self._check(samples)
        labels = y.astype(np.float32)
        total = np.zeros(self._weights.array.size, np.float64)
        buffers = self._buffers.array.copy()
        with self._one_thread:
            self._draw_from(self._seed)
            for start in range(0, len(y), GRADIENT_BATCH):
                rows = np.arange(start, min(start + GRADIENT_BATCH, len(y)))
                self._run_step(x, labels, rows)
                total += (len(rows) / len(y)) * self._gradient.array
        self._buffers.array[...] = buffers
        return total.astype(np.float32)

    def evaluate(self, samples: SamplesLike, batch_size: int = 500) -> Metrics:
        """Return the loss and accuracy of the loaded weights, without dropout; see `scores`."""
        return self.scores(samples, batch_size).metrics()

    def scores(
        self, samples: SamplesLike, batch_size: int = 500, start: int = 0, stop: int | None = None
    ) -> Scores:
        """Return the result of the loaded weights on each sample, without dropout.

        The bits of a sample's result do not depend on other batches.

        Args:
            samples: the samples to evaluate on.
            batch_size: how many samples are evaluated together.
            start: the first row, a multiple of `batch_size`.
            stop: the row after the last one; None: all rows from `start`.

        Raises:
            ComputeError: the samples do not fit the model, or the rows do not exist.
        """
        if batch_size < 1:
            raise ComputeError(f"evaluate: batch_size={batch_size} is not at least 1")
        x, y = self._check(samples)
        stop = len(y) if stop is None else stop
        if start % batch_size or not 0 <= start < stop <= len(y):
            raise ComputeError(
                f"evaluate: rows {start} to {stop} of {len(y)}: start must be a multiple of the "
                f"batch size {batch_size}, and stop above start and at most {len(y)}"
            )
        # A power of two, so that few graphs are bound; surplus rows are not used.
        batch = min(batch_size, 1 << (len(y) - 1).bit_length())
        right, losses = np.zeros(stop - start, bool), np.zeros(stop - start)
        with self._one_thread:
            scorer = self._scorers[batch]
            scorer.refresh()
            for first in range(start, stop, batch):
                rows = np.arange(first, min(first + batch, stop))
                _gather(x, rows, scorer.x[: len(rows)])
                logits = scorer.run()[: len(rows)]
                losses[rows - start] = self.loss.loss(logits, y[rows])
                right[rows - start] = self.loss.predict(logits) == y[rows]
        return Scores(right, losses, batch)

    def _trace(self) -> Any:
        """Return the model as a symbol with known shapes, or None if it cannot be traced."""
        example = np.zeros((2, *self.example_shape), self.example_dtype)
        try:
            output = trace(self._block)
        except ComputeError:
            output = None
        try:
            if output is None:
                settle_shapes(self._block, example)
                with mx.autograd.pause(train_mode=False):
                    shape = self._block(mx.nd.array(example, dtype=example.dtype)).shape
            else:
                # MXNet prints its arguments before it raises an error.
                with redirect_stdout(StringIO()):
                    given, (shape,), statistics = output.infer_shape(data=example.shape)
                shapes = dict(zip(output.list_arguments(), given, strict=True))
                shapes.update(zip(output.list_auxiliary_states(), statistics, strict=True))
                for _, parameter in parameters(self._block):
                    if parameter.name in shapes:
                        parameter.shape = shapes[parameter.name]
        except ComputeError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[-1]
            raise ComputeError(
                f"the model does not take inputs of shape {self.example_shape}: {reason}"
            ) from error
        if tuple(shape) != (2, self.loss.outputs):
            raise ComputeError(
                f"the model's output for 2 inputs has shape {tuple(shape)}, "
                f"not (2, {self.loss.outputs})"
            )
        return output

    def _draw_from(self, seed: int) -> None:
        if self._random:
            with self._one_thread:
                seed_mxnet(seed)

    def _run_step(
        self, x: np.ndarray, labels: np.ndarray, rows: np.ndarray
    ) -> CompiledStep | ImperativeStep:
        """Compute the gradient of some rows at the current weights."""
        step = self._steps[len(rows)]
        _gather(x, rows, step.x)
        labels.take(rows, out=step.y, mode="clip")
        step.run()
        return step

    def _bind_step(self, batch: int) -> CompiledStep | ImperativeStep:
        x = aligned((batch, *self.example_shape), self.example_dtype)
        if self._output is None:
            return ImperativeStep(self._block, self.loss, x, self.loss.outputs)
        vectors = self._weights, self._buffers, self._gradient
        return CompiledStep(
            self._training_graph, self._names, self.loss, x, vectors, self._constants
        )

    @cached_property
    def _training_graph(self) -> Any:
        known = {**self._weights.views, **self._buffers.views, **self._constants}
        shapes = {name: known[own].shape for name, own in self._names.items() if own in known}
        return training_graph(self._output, shapes, self.example_shape)

    def _bind_scorer(self, batch: int) -> CompiledScorer | ImperativeScorer:
        x = aligned((batch, *self.example_shape), self.example_dtype)
        if self._output is None:
            block = self._build()
            settle_shapes(block, x)
            return ImperativeScorer(block, x, self._weights, self._buffers)
        vectors = self._weights, self._buffers
        return CompiledScorer(self._output, self._names, x, vectors, self._constants)

    def _check(self, samples: SamplesLike) -> tuple[np.ndarray, np.ndarray]:
        x, y = np.asarray(samples.x), np.asarray(samples.y)
        if len(y) == 0:
            raise ComputeError("there are no samples: a client must have at least one")
        if x.shape != (len(y), *self.example_shape):
            raise ComputeError(
                f"samples of shape {x.shape} with {len(y)} labels do not fit the model, "
                f"which takes (n, {', '.join(map(str, self.example_shape))})"
            )
        if y.dtype.kind not in "iu":
            raise ComputeError(f"labels are {y.dtype}: they must be integers")
        if y.min() < 0 or y.max() >= self.loss.labels:
            raise ComputeError(
                f"labels go from {y.min()} to {y.max()}: they must be 0 to {self.loss.labels - 1}"
            )
        return x, y


def _gather(x: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    if x.dtype == out.dtype:
        x.take(rows, axis=0, out=out, mode="clip")
    else:
        out[...] = x[rows]


@dataclass(frozen=True)
class Compute:
    """An engine with samples: the test set on the server, the client's samples on a client."""

    engine: MXNetEngine
    samples: Samples
