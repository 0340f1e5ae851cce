"""The engine: one model on flat vectors. It knows neither rounds nor clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import mxnet as mx
import numpy as np

from layers.compute.data.dataset import Samples
from layers.compute.engines.mxnet.batches import Batch, Batches, TrainReport
from layers.compute.engines.mxnet.execution import (
    LABEL,
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
from layers.compute.engines.mxnet.layers import Layers
from layers.compute.engines.mxnet.objective import (
    Feed,
    Objective,
    Step,
    array_name,
    reference_name,
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
from layers.compute.engines.mxnet.training import TrainingPlan, batch_of, shuffled, steps_of
from layers.compute.errors import ComputeError, unknown
from layers.compute.losses import CROSS_ENTROPIES, CrossEntropy, Loss
from layers.compute.losses.loss import Outputs, name_of
from layers.compute.scores import Metrics, Scores

GradientHook = Callable[[np.ndarray, np.ndarray], None]
Reference: TypeAlias = "np.ndarray | tuple[np.ndarray, np.ndarray]"
"""The weights (d,) of a reference model, alone or with its buffers (b,)."""
Scorer: TypeAlias = "CompiledScorer | ImperativeScorer"

NONE: Mapping[str, Any] = MappingProxyType({})
EMPTY = np.zeros(0, np.int64)

BATCH = 256  # the batch size of `MXNetEngine.gradient` and of `MXNetEngine.outputs`
SCORER_ROWS = 1024  # the samples of all scorers in the cache
MOST_OBJECTIVES = 3  # losses whose training graphs are kept


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
        loss: what local training minimises; None: the model's own loss, which is that of its name
            in the block's attribute `loss`, or softmax without one. A loss `softmax` or `sigmoid`
            is the model's own.

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
        loss: Loss | None = None,
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
        self.own_loss = loss if isinstance(loss, CrossEntropy) else self._named_loss()
        self.loss: Loss = loss or self.own_loss
        self._outputs, self._labels = self.own_loss.sizes(classes)
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
        self._objectives: OrderedDict[Hashable, Objective] = OrderedDict()
        self._scorers: dict[tuple[str, ...], GraphCache[Scorer]] = {}
        self._tapped: dict[tuple[str, ...], Any] = {(): self._output}
        self._training_graphs: dict[tuple[str, ...], Any] = {}
        self._checked(self.loss)
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
            self._outputs,
        )

    @property
    def loss_alone(self) -> Loss:
        """The loss, or the model's own one if the loss needs what only a trainer gives."""
        return self.own_loss if self.loss.references or self.loss.arrays else self.loss

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

    def batches(
        self,
        samples: SamplesLike,
        plan: TrainingPlan,
        seed: int,
        *,
        loss: Loss | None = None,
        references: Mapping[str, Reference] = NONE,
        arrays: Mapping[str, np.ndarray] = NONE,
    ) -> Batches:
        """Return the mini-batches of a local training; `step` takes its steps.

        Args:
            samples: the training samples.
            plan: epochs or steps, batch size, learning rate, momentum, weight decay.
            seed: for shuffling and dropout.
            loss: what the steps minimise; None: the engine's loss.
            references: the reference models that the loss reads, by name: weights (d,), with the
                loaded buffers, or weights and buffers. They infer, without dropout.
            arrays: the arrays that the loss reads, by name.

        Raises:
            ComputeError: the samples do not fit the model, a value of the plan is not allowed, or
                the loss lacks a reference model or an array, or does not fit the model.
        """
        x, y = self._check(samples)
        batch, steps = batch_of(plan, len(y)), steps_of(plan, len(y))
        rows = None  # those that the references see
        if steps * batch < len(y):
            rows = np.unique(np.concatenate([EMPTY, *shuffled(len(y), batch, steps, seed)]))
        feed = self._feed(loss or self.loss, x, y, rows, references, arrays)
        size = self._weights.array.size
        return Batches(feed, plan, seed, size, lambda: self._draw_from(seed))

    def step(self, batch: Batch, correct: GradientHook | None = None) -> None:
        """Take a step of SGD from the loaded weights, with the velocity of the batch's training.

        Args:
            batch: a mini-batch of `batches`.
            correct: called as `correct(g, w)`, before weight decay and momentum. `g` (d,) is the
                mini-batch's mean gradient, which may be changed in place; `w` (d,) are the weights,
                read-only.
        """
        of, one = batch.batches, self._one_thread
        if not one.thread.limits.held:
            with one:
                return self.step(batch, correct)
        with one.turn:  # the lock alone is faster
            of.reported.add(of.feed.run(batch.rows).head, batch.rows)
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
            batch.batches.feed.run(batch.rows)
        return self._gradient.array

    def train(
        self,
        samples: SamplesLike,
        plan: TrainingPlan,
        seed: int,
        correct: GradientHook | None = None,
        *,
        loss: Loss | None = None,
        references: Mapping[str, Reference] = NONE,
        arrays: Mapping[str, np.ndarray] = NONE,
    ) -> TrainReport:
        """Take a step for each of the `batches` of a local training, and return its report."""
        batches = self.batches(samples, plan, seed, loss=loss, references=references, arrays=arrays)
        for batch in batches:
            self.step(batch, correct)
        return batches.report()

    def gradient(self, samples: SamplesLike) -> np.ndarray:
        """Return the mean gradient, float32 (d,), of all samples at the loaded weights.

        Weights and buffers do not change. A large set is computed in batches of 256, weighted by
        their sizes; BatchNorm normalises each batch by its own statistics, as in training.

        Raises:
            ComputeError: the samples do not fit the model, or the loss reads more than samples.
        """
        x, y = self._check(samples)
        feed = self._feed(self.loss, x, y)
        total = np.zeros(self._weights.array.size, np.float64)
        buffers = self._buffers.array.copy()
        with self._one_thread:
            self._draw_from(self._seed)
            for start in range(0, len(y), BATCH):
                rows = np.arange(start, min(start + BATCH, len(y)))
                feed.run(rows)
                total += (len(rows) / len(y)) * self._gradient.array
        self._buffers.array[...] = buffers
        return total.astype(np.float32)

    def outputs(self, samples: SamplesLike, layers: Sequence[str] = ()) -> Outputs[np.ndarray]:
        """Return what the loaded weights compute for each sample, without dropout.

        Args:
            samples: the samples.
            layers: the layers whose outputs are wanted, too, such as "features.3"; `LAST` is the
                input of the last layer that has parameters.

        Raises:
            ComputeError: the samples do not fit the model, or it has no such layer.
        """
        x, y = self._check(samples)
        return self._computed(x, np.arange(len(y)), tuple(layers))

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
            scorer = self._scorers_of(())[batch]
            scorer.refresh()
            for first in range(start, stop, batch):
                rows = np.arange(first, min(first + batch, stop))
                scorer.x[: len(rows)] = x[rows]
                logits = scorer.run()[0][: len(rows)]
                losses[rows - start] = self.own_loss.loss(logits, y[rows])
                right[rows - start] = self.own_loss.predict(logits) == y[rows]
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
        if tuple(shape) != (2, self._outputs):
            raise ComputeError(
                f"the model's output for 2 inputs has shape {tuple(shape)}, "
                f"not (2, {self._outputs})"
            )
        return output

    def _draw_from(self, seed: int) -> None:
        if self._random:
            with self._one_thread:
                seed_mxnet(seed)

    def _named_loss(self) -> CrossEntropy:
        name = getattr(self._block, "loss", None)
        name = name if isinstance(name, str) else "softmax"
        if name not in CROSS_ENTROPIES:
            raise ComputeError(unknown("loss", name, CROSS_ENTROPIES))
        return CROSS_ENTROPIES[name]()

    def _checked(self, loss: Loss) -> Loss:
        """Return a loss, after a check that it fits the model."""
        if isinstance(loss, CrossEntropy) and loss != self.own_loss:
            raise ComputeError(
                f"loss {name_of(loss)} is not the model's own, which is {name_of(self.own_loss)}"
            )
        if name_of(self.own_loss) not in loss.FITS:
            raise ComputeError(
                f"loss {name_of(loss)} is for models with {' or '.join(loss.FITS)}, and the "
                f"model's own loss is {name_of(self.own_loss)}"
            )
        Layers(self._block, loss.layers)
        return loss

    def _feed(
        self,
        loss: Loss,
        x: np.ndarray,
        y: np.ndarray,
        rows: np.ndarray | None = None,
        references: Mapping[str, Reference] = NONE,
        arrays: Mapping[str, np.ndarray] = NONE,
    ) -> Feed:
        """Return what the training graphs of a loss read."""
        for kind, wanted, given, argument in (
            ("reference model", loss.references, references, "references"),
            ("array", loss.arrays, arrays, "arrays"),
        ):
            for name in wanted:
                if name not in given:
                    raise ComputeError(
                        f"loss {name_of(loss)}: the {kind} {name} is missing; a trainer gives it "
                        f"as engine.batches(..., {argument}={{{name!r}: ...}})"
                    )
        read = {name: np.asarray(arrays[name], np.float32) for name in loss.arrays}
        for name in loss.rows:
            if len(read[name]) != len(y):
                raise ComputeError(
                    f"loss {name_of(loss)}: the array {name} has {len(read[name])} rows for "
                    f"{len(y)} samples"
                )
        fixed: dict[str, np.ndarray] = {}
        by_row: dict[str, np.ndarray] = {}
        inputs = loss.inputs(y, self._labels, read)
        for name, array in inputs.items():
            into = by_row if name in loss.rows else fixed
            into[array_name(name)] = np.asarray(array, np.float32)
        for name in loss.references:
            outputs = self._of_reference(references[name], x, rows, loss.layers)
            by_row[reference_name(name)] = outputs.logits
            for layer, values in outputs.layers.items():
                by_row[reference_name(name, layer)] = values
        objective = self._objective(loss, tuple(inputs), fixed, by_row)
        return Feed(objective, x, y, self.example_dtype, fixed, by_row)

    def _objective(
        self,
        loss: Loss,
        arrays: tuple[str, ...],
        fixed: Mapping[str, np.ndarray],
        by_row: Mapping[str, np.ndarray],
    ) -> Objective:
        """Return the objective of a loss whose inputs have these shapes."""
        shapes = {name: array.shape for name, array in fixed.items()}
        row_shapes = {name: array.shape[1:] for name, array in by_row.items()}
        try:
            key = (loss, tuple(shapes.items()), tuple(row_shapes.items()))
            found = self._objectives.get(key)
        except TypeError:
            text = "cannot be compared with others; make it a dataclass with frozen=True"
            raise ComputeError(f"loss {name_of(loss)} {text}") from None
        if found is not None:
            self._objectives.move_to_end(key)
            return found

        def bind(objective: Objective, batch: int) -> Step:
            inputs = {name: aligned(shape) for name, shape in shapes.items()}
            inputs |= {name: aligned((batch, *shape)) for name, shape in row_shapes.items()}
            return self._bind_step(objective, batch, inputs)

        made = Objective(self._checked(loss), self.own_loss, self._labels, arrays, bind)
        self._objectives[key] = made
        if len(self._objectives) > MOST_OBJECTIVES:
            self._objectives.popitem(last=False)
        return made

    def _bind_step(
        self, objective: Objective, batch: int, inputs: Mapping[str, np.ndarray]
    ) -> Step:
        x = aligned((batch, *self.example_shape), self.example_dtype)
        layers = objective.loss.layers
        if self._output is None:
            return ImperativeStep(
                Layers(self._block, layers),
                lambda outputs, y, others: objective.head(mx.nd, outputs, y, others, batch),
                x,
                inputs,
                self._gradient,
            )
        outputs = self._training_graph(layers)
        variables = {name: mx.sym.var(name) for name in inputs}
        graph = objective.head(mx.sym, list(outputs), mx.sym.var(LABEL), variables, batch)
        vectors = self._weights, self._buffers, self._gradient
        return CompiledStep(graph, self._names, x, inputs, vectors, self._constants)

    def _training_graph(self, layers: tuple[str, ...]) -> Any:
        """Return the graph of the model's output and of those of layers, for training."""
        if layers not in self._training_graphs:
            known = {**self._weights.views, **self._buffers.views, **self._constants}
            shapes = {name: known[own].shape for name, own in self._names.items() if own in known}
            graph = training_graph(self._traced(layers), shapes, self.example_shape)
            self._training_graphs[layers] = graph
        return self._training_graphs[layers]

    def _traced(self, layers: tuple[str, ...]) -> Any:
        """Return the graph of the model's output and of those of layers."""
        if layers not in self._tapped:
            self._tapped[layers] = trace(self._block, Layers(self._block, layers))
        return self._tapped[layers]

    def _of_reference(
        self,
        reference: Reference,
        x: np.ndarray,
        rows: np.ndarray | None,
        layers: tuple[str, ...],
    ) -> Outputs[np.ndarray]:
        """Return what a reference model computes for rows of x; other rows are zero."""
        now = self.weights.copy(), self.buffers.copy()
        weights, buffers = reference if isinstance(reference, tuple) else (reference, now[1])
        self.load(weights, buffers)
        try:
            return self._computed(x, np.arange(len(x)) if rows is None else rows, layers)
        finally:
            self.load(*now)

    def _computed(
        self, x: np.ndarray, rows: np.ndarray, layers: tuple[str, ...]
    ) -> Outputs[np.ndarray]:
        """Return the outputs of the loaded weights for rows of x; other rows are zero."""
        found: list[np.ndarray] = []
        with self._one_thread:
            scorer = self._scorers_of(layers)[min(BATCH, 1 << (max(len(rows), 1) - 1).bit_length())]
            scorer.refresh()
            for start in range(0, max(len(rows), 1), len(scorer.x)):
                part = rows[start : start + len(scorer.x)]
                scorer.x[: len(part)] = x[part]
                values = scorer.run()
                found = found or [np.zeros((len(x), *one.shape[1:]), np.float32) for one in values]
                for into, value in zip(found, values, strict=True):
                    into[part] = value[: len(part)]
        return Outputs(found[0], dict(zip(layers, found[1:], strict=True)))

    def _scorers_of(self, layers: tuple[str, ...]) -> GraphCache[Scorer]:
        if layers not in self._scorers:
            self._scorers[layers] = GraphCache(
                lambda batch: self._bind_scorer(batch, layers), SCORER_ROWS
            )
        return self._scorers[layers]

    def _bind_scorer(self, batch: int, layers: tuple[str, ...]) -> Scorer:
        x = aligned((batch, *self.example_shape), self.example_dtype)
        if self._output is None:
            block = self._build()
            settle_shapes(block, x)
            return ImperativeScorer(block, Layers(block, layers), x, self._weights, self._buffers)
        vectors = self._weights, self._buffers
        return CompiledScorer(self._traced(layers), self._names, x, vectors, self._constants)

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
        if y.min() < 0 or y.max() >= self._labels:
            raise ComputeError(
                f"labels go from {y.min()} to {y.max()}: they must be 0 to {self._labels - 1}"
            )
        return x, y


@dataclass(frozen=True)
class Compute:
    """An engine with samples: the test set on the server, the client's samples on a client."""

    engine: MXNetEngine
    samples: Samples
