"""The engine: one model on flat vectors. It knows neither rounds nor clients.

`Engine` has what all engines share. A package below this one implements it for a library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from layers.compute.data.dataset import Samples
from layers.compute.data.targets import Targets, of_classes
from layers.compute.engines.batches import Batch, Batches, TrainReport
from layers.compute.engines.definition import Definition
from layers.compute.engines.evaluation import Evaluator
from layers.compute.engines.graphs import GraphCache, Scorer, Step
from layers.compute.engines.layout import FlatVector, Layout, aligned
from layers.compute.engines.objective import Feed, Objective, array_name, reference_name
from layers.compute.engines.one_thread import OneThread
from layers.compute.engines.training import TrainingPlan, batch_of, shuffled, starts, steps_of
from layers.compute.errors import ComputeError, DataError, unknown
from layers.compute.losses import OWN_LOSSES, USUAL, Loss, OwnLoss
from layers.compute.losses.loss import Outputs, name_of
from layers.compute.metrics import Metric
from layers.compute.optimisers import Optimiser, Sgd
from layers.compute.scores import Metrics, Scores

GradientHook = Callable[[np.ndarray, np.ndarray], None]
Reference: TypeAlias = "np.ndarray | tuple[np.ndarray, np.ndarray]"
"""The weights (d,) of a reference model, alone or with its buffers (b,)."""

NONE: Mapping[str, Any] = MappingProxyType({})
EMPTY = np.zeros(0, np.int64)

BATCH = 256  # the batch size of `Engine.gradient` and of `Engine.outputs`
SCORER_ROWS = 1024  # the samples of all scorers in the cache
MOST_OBJECTIVES = 3  # losses whose training graphs are kept


class SamplesLike(Protocol):
    """Inputs and labels, row by row."""

    @property
    def x(self) -> np.ndarray:
        """Inputs, (n, ...)."""

    @property
    def y(self) -> np.ndarray:
        """Targets, (n, ...)."""


class Engine(ABC):
    """A model with its trainable parameters in a float32 vector (d,), and its buffers in another.

    Buffers (b,) are state without a gradient, such as BatchNorm's running statistics. A constant is
    in neither vector, because it belongs to the model that every process builds.

    Attributes:
        least_batch: the fewest samples of a mini-batch of a larger set: 2 for a model with buffers.
        name: the engine's name in an experiment.
        example_shape: the shape of one input, without the batch.
        example_dtype: the dtype of the model's inputs.
        targets: what the model learns to give.
        own_loss: the model's own loss, by which it is evaluated.
        loss: what local training minimises.
        optimiser: the optimiser of all training; it may be set before the first one.
        accumulate: the number of parts of a mini-batch whose gradients are computed one after the
            other; it may be set before the first training of a model without buffers.
        layout: the place of each parameter in the vector.
        buffers_layout: the place of each buffer in the other vector.

    Args:
        one_thread: the context in which the engine's operators run.
        model: the model; its attribute `loss`, if it has one, is the name of its own loss.
        example_shape: the shape of one input, without the batch.
        targets: what the model learns to give; a number: classes.
        example_dtype: the dtype of the model's inputs.
        seed: for the initial weights.
        loss: what local training minimises; None: the model's own loss, which is the usual one of
            the targets if it names none. A loss of `OWN_LOSSES` is the model's own.

    Raises:
        ComputeError: the loss is unknown, or is not for these targets.
    """

    name: ClassVar[str]
    optimiser: Optimiser = Sgd()
    accumulate: int = 1
    layout: Layout
    buffers_layout: Layout

    def __init__(
        self,
        one_thread: OneThread,
        model: Any,
        example_shape: tuple[int, ...],
        targets: Targets | int,
        example_dtype: str,
        seed: int,
        loss: Loss | None,
    ):
        self.example_shape = tuple(example_shape)
        self.example_dtype = example_dtype
        self._one_thread = one_thread
        self._seed = seed
        self.targets = of_classes(targets)
        self.own_loss = loss if isinstance(loss, OwnLoss) else _named_loss(model, self.targets)
        self.loss: Loss = loss or self.own_loss
        self.own_loss.check(self.targets)
        self._outputs = self.own_loss.outputs(self.targets)
        self._objectives: OrderedDict[Hashable, Objective] = OrderedDict()
        self._scorers: dict[tuple[str, ...], GraphCache[Scorer]] = {}

    def _hold(self, weights: FlatVector, buffers: FlatVector, gradient: FlatVector) -> None:
        """Take the vectors, in which the steps and the scorers work.

        Raises:
            ComputeError: the model has no trainable parameter.
        """
        if not weights.layout:
            raise ComputeError("the model has no trainable parameter")
        self.layout, self.buffers_layout = weights.layout, buffers.layout
        self._weights, self._buffers, self._gradient = weights, buffers, gradient
        # BatchNorm cannot normalise one sample by its own statistics.
        self.least_batch = 2 if buffers.array.size else 1

    def _check_output(self, shape: tuple[int, ...]) -> None:
        """Check the shape of the model's output for two inputs.

        Raises:
            ComputeError: it is not (2, outputs).
        """
        if shape != (2, *self._outputs):
            raise ComputeError(
                f"the model's output for 2 inputs has shape {shape}, not {(2, *self._outputs)}"
            )

    @abstractmethod
    def initial(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return initial weights (d,) and buffers (b,), float32, equal in every process."""

    @property
    @abstractmethod
    def definition(self) -> Definition:
        """The model without its weights."""

    @abstractmethod
    def _step(self, objective: Objective, batch: int, inputs: Mapping[str, np.ndarray]) -> Step:
        """Return the forward and the backward pass of a batch size.

        Args:
            objective: the loss; its `head` is to be minimised.
            batch: the batch size.
            inputs: the memory of the other inputs of the loss, by name.
        """

    def _reported(self, loss: Loss) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return what finds each sample's loss in `Step.head` of a loss."""
        return loss.reported

    @abstractmethod
    def _scorer(self, batch: int, layers: tuple[str, ...]) -> Scorer:
        """Return the inference of a batch size: the model's outputs, and those of layers."""

    @abstractmethod
    def _check_layers(self, layers: tuple[str, ...]) -> None:
        """Check that the model has these layers.

        Raises:
            ComputeError: it lacks one.
        """

    @abstractmethod
    def _draw_from(self, seed: int) -> None:
        """Seed the random numbers that the model draws in training."""

    @property
    def device(self) -> str:
        """The name of the device on which the operators run."""
        return "cpu"

    @property
    def takes_tokens(self) -> bool:
        """Whether the model's inputs are whole numbers that it looks up."""
        return np.dtype(self.example_dtype).kind in "iu"

    def names_in_pytorch(self) -> dict[str, str]:
        """Return the engine's name of each tensor in a PyTorch file, by its name there.

        A counter, which the engine does not have, has its own name. Without a translation of the
        model, the names are the engine's.
        """
        return {name: name for name in self.definition.shapes}

    def values(self) -> dict[str, np.ndarray]:
        """Return the value of each parameter, buffer and constant by its name."""
        values = dict(self.definition.constants)
        for vector in (self._weights, self._buffers):
            values |= vector.tensors()
        return values

    @property
    def weights(self) -> np.ndarray:
        """The current weights, float32 (d,), as a read-only view."""
        return self._weights.readonly

    @property
    def buffers(self) -> np.ndarray:
        """The current buffers, float32 (b,), as a read-only view."""
        return self._buffers.readonly

    @property
    def loss_alone(self) -> Loss:
        """The loss, or the model's own one if the loss needs what only a trainer gives."""
        return self.own_loss if self.loss.references or self.loss.arrays else self.loss

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
        kept: Mapping[str, np.ndarray] = NONE,
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
            kept: the optimiser's state to begin with, as `Batches.kept` of an earlier training;
                empty: a new one.

        Raises:
            ComputeError: the samples do not fit the model, a value of the plan is not allowed, or
                the loss lacks a reference model or an array, or does not fit the model.
        """
        x, y = self._check(samples)
        batch, steps = batch_of(plan, len(y)), steps_of(plan, len(y), self.least_batch)
        rows = None  # those that the references see
        if steps * batch < len(y):
            drawn = shuffled(len(y), batch, steps, seed, self.least_batch)
            rows = np.unique(np.concatenate([EMPTY, *drawn]))
        feed = self._feed(loss or self.loss, x, y, rows, references, arrays)
        size, one = self._weights.array.size, self._one_thread
        begin = partial(self._draw_from, seed)
        return Batches(feed, plan, seed, size, self.least_batch, one, begin, self.optimiser, kept)

    def step(self, batch: Batch, correct: GradientHook | None = None) -> None:
        """Take a step of the batch's optimiser from the loaded weights.

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
            of.reported.add(self._run(of.feed, batch.rows), batch.rows)
            if correct is not None:
                correct(self._gradient.array, self._weights.readonly)
            of.descent.step(self._weights.array, self._gradient.array)

    def batch_gradient(self, batch: Batch) -> np.ndarray:
        """Return a mini-batch's mean gradient at the loaded weights, float32 (d,).

        It is a view, which the next call of the engine overwrites. The weights do not change, and
        BatchNorm's running statistics change as in a step. No report counts it.

        Args:
            batch: a mini-batch of `batches`.
        """
        with self._one_thread:
            self._run(batch.batches.feed, batch.rows)
        return self._gradient.array

    def _run(self, feed: Feed, rows: np.ndarray) -> np.ndarray:
        """Compute the mean gradient of some rows; return the head's output for them."""
        if self.accumulate == 1:
            return feed.run(rows).head
        gradient, heads = np.zeros_like(self._gradient.array), []
        for part in np.array_split(rows, min(self.accumulate, len(rows))):
            heads.append(feed.run(part).head.copy())
            self._gradient.array *= np.float32(len(part) / len(rows))
            gradient += self._gradient.array
        self._gradient.array[...] = gradient
        return np.concatenate(heads)

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
            for rows in np.split(np.arange(len(y)), starts(len(y), BATCH, self.least_batch)[1:]):
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
        self,
        samples: SamplesLike,
        batch_size: int = 500,
        start: int = 0,
        stop: int | None = None,
        *,
        outputs: bool = False,
    ) -> Scores:
        """Return the result of the loaded weights on each sample, without dropout.

        The bits of a sample's result do not depend on other batches.

        Args:
            samples: the samples to evaluate on.
            batch_size: how many samples are evaluated together.
            start: the first row, a multiple of `batch_size`.
            stop: the row after the last one; None: all rows from `start`.
            outputs: whether to keep the model's outputs, for metrics.

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
        number = stop - start
        losses, right = np.zeros(number), np.zeros(number if self.targets.classes else 0, bool)
        kept = np.zeros((number if outputs else 0, *self._outputs), np.float32)
        with self._one_thread:
            scorer = self._scorers_of(())[batch]
            scorer.refresh()
            for first in range(start, stop, batch):
                rows = np.arange(first, min(first + batch, stop))
                scorer.x[: len(rows)] = x[rows]
                logits = scorer.run()[0][: len(rows)]
                losses[rows - start] = self.own_loss.loss(logits, y[rows])
                if self.targets.classes:
                    right[rows - start] = self.own_loss.predict(logits) == y[rows]
                if outputs:
                    kept[rows - start] = logits
        return Scores(right, losses, batch, kept)

    def _checked(self, loss: Loss) -> Loss:
        """Return a loss, after a check that it fits the model."""
        if isinstance(loss, OwnLoss) and loss != self.own_loss:
            raise ComputeError(
                f"loss {name_of(loss)} is not the model's own, which is {name_of(self.own_loss)}"
            )
        if loss.FITS and self.own_loss.name not in loss.FITS:
            raise ComputeError(
                f"loss {name_of(loss)} is for models with {' or '.join(loss.FITS)}, and the "
                f"model's own loss is {name_of(self.own_loss)}"
            )
        self._check_layers(loss.layers)
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
        inputs = loss.inputs(y, self.targets.size, read)
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
            return self._step(objective, batch, inputs)

        own, size = self.own_loss, self.targets.size
        made = Objective(self._checked(loss), own, size, arrays, bind, self._reported(loss))
        self._objectives[key] = made
        if len(self._objectives) > MOST_OBJECTIVES:
            self._objectives.popitem(last=False)
        return made

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
                lambda batch: self._scorer(batch, layers), SCORER_ROWS
            )
        return self._scorers[layers]

    def _check(self, samples: SamplesLike) -> tuple[np.ndarray, np.ndarray]:
        x, y = np.asarray(samples.x), np.asarray(samples.y)
        if len(y) == 0:
            raise ComputeError("there are no samples: a client must have at least one")
        if x.shape != (len(y), *self.example_shape):
            raise ComputeError(
                f"samples of shape {x.shape} with {len(y)} labels do not fit the model, "
                f"which takes (n, {', '.join(map(str, self.example_shape))})"
            )
        try:
            self.targets.check(y, "labels")
        except DataError as error:
            raise ComputeError(str(error)) from None
        return x, y


def _named_loss(model: Any, targets: Targets) -> OwnLoss:
    """Return the loss that a model names in its attribute `loss`, or that of the targets."""
    name = getattr(model, "loss", None)
    if not isinstance(name, str):
        return USUAL[targets.kind]()
    if name not in OWN_LOSSES:
        raise ComputeError(unknown("loss", name, OWN_LOSSES))
    return OWN_LOSSES[name]()


@dataclass(frozen=True)
class Compute:
    """An engine with samples.

    Attributes:
        engine: the engine.
        samples: those that evaluate the global model on the server, the client's own on a client.
        metrics: what is measured besides the loss; None: the usual metrics of the targets.
        tests: returns the samples of a client for evaluation, if it has any; None: it has none.
    """

    engine: Engine
    samples: Samples
    metrics: tuple[Metric, ...] | None = None
    tests: Callable[[], Samples | None] | None = None

    def sums(self, weights: np.ndarray, buffers: np.ndarray) -> dict[str, np.ndarray]:
        """Return what a client sends of a model's results on `tests`; empty without samples."""
        samples = None if self.tests is None else self.tests()
        if samples is None or not len(samples):
            return {}
        self.engine.load(weights, buffers)
        scores = self.engine.scores(samples, outputs=self.evaluator.needs_outputs)
        return self.evaluator.sums(scores, samples.y)

    @cached_property
    def evaluator(self) -> Evaluator:
        """What an evaluation measures.

        Raises:
            ComputeError: a metric is not for the targets, or there twice.
        """
        return Evaluator.of(self.metrics, self.engine.own_loss, self.engine.targets)
