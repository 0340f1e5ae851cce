"""The optimiser: how a local step changes the weights, given the gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from layers.compute.errors import ComputeError
from layers.settings import Settings

Vector: TypeAlias = Any
"""float32 (d,) of numpy; of many clients (k, d), of the engine's library."""

State: TypeAlias = "dict[str, Any]"
"""The named arrays that an optimiser changes in place from step to step."""


@dataclass(frozen=True)
class Step:
    """What an optimiser gets for a step besides the gradient and its state.

    Attributes:
        rate: the learning rate.
        momentum: `compute.train.momentum`, for an optimiser that has one.
        spare: memory for intermediate values like the gradient, whose content is of no use.
        ops: the library of the vectors, with `multiply`, `divide` and `sqrt`: numpy or PyTorch.
    """

    rate: float
    momentum: float
    spare: Vector
    ops: Any = np


@dataclass(frozen=True)
class Optimiser(Settings, ABC):
    """An optimiser of local training; its settings are the fields of a frozen dataclass.

    Weight decay is not its matter: the engine adds it to the gradient (L2), or, if it is
    `decoupled`, multiplies the weights by ``1 - rate * weight_decay`` before the step.

    Attributes:
        name: its name in an experiment file.
        has_momentum: whether it uses `Step.momentum`.
        decoupled: whether weight decay is outside of the gradient.
        state: ``"reset"`` starts each local training with a new state, as FedAvg does; ``"keep"``
            starts it with the state after the client's last accepted update.
    """

    refusal = ComputeError

    name: ClassVar[str]
    has_momentum: ClassVar[bool] = False
    decoupled: ClassVar[bool] = False

    state: Literal["reset", "keep"] = field(default="reset", kw_only=True)

    @abstractmethod
    def begin(self, dimension: int, momentum: float) -> State:
        """Return the state before the first step.

        Args:
            dimension: the number of weights, d.
            momentum: the momentum of all steps.
        """

    @abstractmethod
    def change(self, gradient: Vector, state: State, step: Step) -> None:
        """Overwrite the gradient with what the step subtracts from the weights.

        It changes the state in place, and should allocate no vectors. One that computes with
        operators and `Step.ops` alone trains many clients at once.
        """


class Descent:
    """The steps of one local training.

    A step allocates no memory: it overwrites the gradient with the change of the weights.

    Args:
        optimiser: the optimiser.
        dimension: the number of weights.
        learning_rate: the learning rate.
        momentum: the momentum.
        weight_decay: the factor of the weights in their decay.
        kept: the state after an earlier training, which is copied; one of another optimiser is left
            out.
        ops: the library of the vectors; see `Step`.
        put: gives it a vector (d,), for many clients as a matrix (k, d).
    """

    def __init__(
        self,
        optimiser: Optimiser,
        dimension: int,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        kept: Mapping[str, np.ndarray],
        ops: Any = np,
        put: Callable[[np.ndarray], Vector] = lambda vector: vector,
    ):
        self._optimiser = optimiser
        spare = put(np.empty(dimension, np.float32))
        self._step = Step(learning_rate, momentum, spare, ops)
        self._decay = np.float32(weight_decay)
        self._shrunk = np.float32(1 - learning_rate * weight_decay)
        self._state = optimiser.begin(dimension, momentum)
        if _shapes(kept) == _shapes(self._state):
            for name, array in self._state.items():
                array[...] = kept[name]
        for name, array in self._state.items():
            if array.shape == (dimension,):
                self._state[name] = put(array)

    def only(self, clients: int) -> None:
        """Go on with the first ones of many clients."""
        self._step = replace(self._step, spare=self._step.spare[:clients])
        for name, array in self._state.items():
            if len(array.shape) == 2:
                self._state[name] = array[:clients]

    @property
    def kept(self) -> State:
        """The state for the next local training; empty if that starts with a new one."""
        return self._state if self._optimiser.state == "keep" else {}

    def step(self, weights: Vector, gradient: Vector) -> None:
        """Move the weights by one step, and overwrite the gradient."""
        if self._decay and self._optimiser.decoupled:
            weights *= self._shrunk
        elif self._decay:
            self._step.ops.multiply(weights, self._decay, out=self._step.spare)
            gradient += self._step.spare
        self._optimiser.change(gradient, self._state, self._step)
        weights -= gradient


def _shapes(state: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in state.items()}
