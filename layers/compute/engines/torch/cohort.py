"""Many clients at once: their weights are the rows of a matrix, and one call takes their steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.func import grad, vmap
from torch.nn.modules.dropout import _DropoutNd

from layers.compute.engines.batches import Training
from layers.compute.engines.torch.device import free_bytes
from layers.compute.engines.torch.engine import TorchEngine
from layers.compute.engines.torch.modules import Layers
from layers.compute.engines.torch.operators import losses_of
from layers.compute.errors import one_line
from layers.compute.losses import Loss
from layers.compute.optimisers.optimiser import Descent

SHARE_OF_FREE = 0.8  # of a device's free memory that is planned for
VECTORS = 6  # of a client: weights, gradient, change, and what an optimiser keeps
ACTIVATIONS = 3  # memory of a step, as a multiple of what its forward pass keeps
CLOSE, CLOSE_BF16 = 1e-2, 5e-2  # the distance of two gradients, relative to their norm


class Cohort:
    """Trains many clients at once on an engine.

    Args:
        engine: the engine.
        most: the most clients at once; fewer if the device lacks memory.
        tell: takes a line for the log.
    """

    def __init__(self, engine: TorchEngine, most: int, tell: Callable[[str], None]) -> None:
        self._engine, self._most, self._tell = engine, most, tell
        self._tried: dict[Loss, str] = {}  # by loss, how a trial step failed
        self._step_bytes = 0

    def refusal(self, training: Training) -> str:
        """Return why trainings such as this one run one after the other; empty: they need not."""
        engine, optimiser = self._engine, self._engine.optimiser
        if engine.buffers.size:
            return "the model has buffers (BatchNorm), which belong to one client"
        if any(isinstance(one, _DropoutNd) and one.p for one in engine._module.modules()):
            return "the model has dropout, whose draws would be others"
        if engine.accumulate > 1:
            return "compute.train.accumulate is above 1"
        if optimiser.state == "keep":
            return f"the optimiser {optimiser.name} keeps its state"
        loss = training.batches.feed.objective.loss
        if loss not in self._tried and len(training.batches):
            self._tried[loss] = self._trial(training)
        return self._tried.get(loss, "")

    def train(self, trainings: Sequence[Training]) -> list[np.ndarray]:
        """Train clients; return the weights of each, float32 (d,)."""
        alike = defaultdict(list)  # one matrix has one loss and one learning rate
        for index, one in enumerate(trainings):
            plan, objective = one.batches.plan, one.batches.feed.objective
            rates = plan.learning_rate, plan.momentum, plan.weight_decay
            alike[rates, objective].append(index)
        found: dict[int, np.ndarray] = {}
        for indices in alike.values():
            indices.sort(key=lambda one: -len(trainings[one].batches))
            while indices:
                some = indices[: self._planned(trainings[indices[0]])]
                try:
                    with self._engine._one_thread:
                        trained = _Matrix(self._engine, [trainings[one] for one in some]).train()
                except (RuntimeError, MemoryError) as error:
                    if len(some) == 1 or not _lacks_memory(error):
                        raise
                    self._most = len(some) // 2
                    self._tell(f"no memory for {len(some)} clients at once: {self._most} from here")
                    continue
                found |= zip(some, trained, strict=True)
                del indices[: len(some)]
        return [found[index] for index in range(len(trainings))]

    def _planned(self, training: Training) -> int:
        """Return how many clients such as this one fit into the free memory."""
        free = free_bytes(self._engine._device)
        vectors = VECTORS + 2 * len(training.terms)
        each = vectors * training.weights.nbytes + training.batches.feed.x.nbytes + self._step_bytes
        if free is not None and SHARE_OF_FREE * free < self._most * each:
            self._most = max(1, int(SHARE_OF_FREE * free / each))
            self._tell(
                f"{self._most} clients at once: each needs {each >> 20} MiB, {free >> 20} are free"
            )
        return self._most

    def _trial(self, training: Training) -> str:
        """Take a step of two clients with a padded batch; return how it fails, or empty."""
        engine = self._engine
        engine.load(training.weights, engine.buffers)
        batch = next(iter(training.batches))
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            expected = engine.batch_gradient(batch).copy()
        self._step_bytes = ACTIVATIONS * sum(kept.values())
        try:
            with engine._one_thread:
                found = _Matrix(engine, [training, training]).trial()
        except Exception as error:  # noqa: BLE001, whatever the code of a user raises
            return f"a step of two clients failed: {one_line(error)}"
        close = CLOSE_BF16 if engine._bf16 else CLOSE
        apart = np.linalg.norm(found - expected, axis=1).max()
        if apart > close * np.linalg.norm(expected):
            return "a sample's outputs depend on other samples of its mini-batch"
        return ""


class _Matrix:
    """Clients of one loss and one learning rate: their weights (k, d) and samples on the device.

    Args:
        engine: the engine.
        trainings: those of the clients, which have ever fewer steps.
    """

    def __init__(self, engine: TorchEngine, trainings: Sequence[Training]) -> None:
        self._engine = engine
        self._batches = [one.batches for one in trainings]
        feeds, plan = [one.feed for one in self._batches], self._batches[0].plan
        self._objective = feeds[0].objective
        self._layers = Layers(engine._module, self._objective.loss.layers)
        weights = [one.weights for one in trainings]
        if all(one is weights[0] for one in weights):
            self._weights = self._put(weights[0]).repeat(len(weights), 1)
        else:
            self._weights = self._put(np.stack(weights))
        x = np.concatenate([feed.x for feed in feeds])
        self._x = self._put(x.astype(engine.example_dtype, copy=False))
        self._y = self._put(np.concatenate([feed.labels for feed in feeds]))
        self._first = np.cumsum([0, *(len(feed.y) for feed in feeds)])  # of each client's samples
        self._fixed = {
            name: self._put(np.stack([feed.fixed[name] for feed in feeds]))
            for name in feeds[0].fixed
        }
        self._by_row = {
            name: self._put(np.concatenate([feed.by_row[name] for feed in feeds]))
            for name in feeds[0].by_row
        }
        self._terms = [
            type(given).stacked(column, self._put)
            for column in zip(*(one.terms for one in trainings), strict=True)
            if (given := next((one for one in column if one is not None), None)) is not None
        ]
        self._descent = Descent(
            engine.optimiser,
            self._weights.shape[1],
            plan.learning_rate,
            plan.momentum,
            plan.weight_decay,
            {},
            torch,
            lambda vector: self._put(vector).repeat(len(trainings), 1),
        )
        self._gradients = vmap(grad(self._loss, has_aux=True))

    def train(self) -> np.ndarray:
        """Take the steps of all clients, and report them; return the weights, float32 (k, d)."""
        rows = [[batch.rows for batch in one] for one in self._batches]
        most = max((len(one) for steps in rows for one in steps), default=0)
        index, shares = (self._put(one) for one in self._padded(rows, most))
        losses = torch.zeros_like(shares)
        weights = self._weights
        for step in range(len(index)):
            working = [steps[step] for steps in rows if len(steps) > step]
            if len(working) < len(weights):
                weights = weights[: len(working)]
                self._descent.only(len(working))
            place = step, slice(len(working)), slice(max(map(len, working)))
            gradient, losses[place] = self.gradient(weights, index[place], shares[place])
            for term in self._terms:
                term.add(gradient, weights)
            self._descent.step(weights, gradient)
        heads = losses.cpu().numpy()
        for client, (batches, steps) in enumerate(zip(self._batches, rows, strict=True)):
            for step, one in enumerate(steps):
                batches.reported.add(heads[step, client, : len(one)], one)
        return np.asarray(self._weights.cpu())

    def trial(self) -> np.ndarray:
        """Return each client's gradient of its first mini-batch, which is padded, and step."""
        rows = [[next(iter(one)).rows] for one in self._batches]
        padded = self._padded(rows, max(len(one) for (one,) in rows) + 1)
        gradient, _ = self.gradient(self._weights, *(self._put(one[0]) for one in padded))
        found = gradient.cpu().clone()
        self._descent.step(self._weights, gradient)
        return np.asarray(found)

    def gradient(self, weights: Tensor, index: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first clients' gradients (n, d) and the loss of each of their samples.

        Args:
            weights: of these clients, (n, d).
            index: the places of the samples, (n, samples).
            shares: their shares in the loss.
        """
        self._engine._module.train()
        inputs = {name: one[: len(weights)] for name, one in self._fixed.items()}
        inputs |= {name: one[index] for name, one in self._by_row.items()}
        found: tuple[Tensor, Tensor] = self._gradients(
            weights, self._x[index], self._y[index], shares, inputs
        )
        return found

    def _loss(
        self, weights: Tensor, x: Tensor, y: Tensor, shares: Tensor, inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return one client's loss, and that of each sample."""
        engine = self._engine
        parts = weights.split([one.stop - one.start for one in engine.layout])
        tensors = {
            one.name: part.view(one.shape) for one, part in zip(engine.layout, parts, strict=True)
        }
        with engine.autocast() if engine._bf16 else nullcontext():
            outputs = self._layers.outputs(x, tensors)
        outputs = [one.float() for one in outputs] if engine._bf16 else outputs
        losses = losses_of(self._objective, outputs, y, inputs)
        return (losses * shares).sum(), losses

    def _padded(
        self, rows: Sequence[Sequence[np.ndarray]], most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of all steps' samples, (steps, clients, most), and their shares.

        Smaller mini-batches are padded with their first sample, whose share is 0.
        """
        shape = max(map(len, rows)), len(rows), most
        index, shares = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for client, steps in enumerate(rows):
            for step, one in enumerate(steps):
                index[step, client] = self._first[client] + one[0]
                index[step, client, : len(one)] += one - one[0]
                shares[step, client, : len(one)] = 1 / len(one)
        return index, shares

    def _put(self, array: np.ndarray) -> Tensor:
        writable = array if array.flags.writeable else array.copy()  # as PyTorch wants it
        return torch.from_numpy(writable).to(self._engine._device)


def _lacks_memory(error: Exception) -> bool:
    """Return whether a device, or this machine, has no memory left."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate" in str(error)
