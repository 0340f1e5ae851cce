"""A mask: the tensors that are sent; the others belong to a client and never leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from layers.logic.core.messages import EMPTY, Layout, Task, Update
from layers.logic.errors import LogicError, Rejected

MASK = "mask"
"""The key of a client's own tensors in `ClientState.memory`."""


@dataclass(frozen=True, eq=False)
class Mask:
    """Which of the model's tensors are sent between server and clients.

    The server's vector stays whole: its values outside of the mask are the initial ones. A client
    starts with these and continues with its own.

    Attributes:
        layout: layout of the model's flat vector.
        own: the names of the tensors that stay on each client.
        initial: float32 (d,), the model that a client's own tensors start from.

    Raises:
        LogicError: `own` names a tensor that the model does not have.
    """

    layout: Layout
    own: frozenset[str]
    initial: np.ndarray

    def __post_init__(self) -> None:
        unknown = sorted(self.own - {tensor.name for tensor in self.layout})
        if unknown:
            raise LogicError(
                f"no tensor is called {', '.join(unknown)}; there are "
                f"{', '.join(tensor.name for tensor in self.layout)}"
            )

    @cached_property
    def travels(self) -> np.ndarray:
        """Which values are sent, bool (d,)."""
        travels = np.ones(self.layout[-1].stop, bool)
        for tensor in self.layout:
            if tensor.name in self.own:
                travels[tensor.start : tensor.stop] = False
        return travels

    def cut(self, vector: np.ndarray) -> np.ndarray:
        """Return the values of a dense vector (d,) that are sent; an empty one stays empty."""
        return vector[self.travels] if vector.size else vector

    def expand(self, values: np.ndarray) -> np.ndarray:
        """Return the update (d,) from the sent `values`; an empty one stays empty.

        Raises:
            Rejected: the mask has another number of values.
        """
        if not values.size:
            return values
        number = int(self.travels.sum())
        if values.shape != (number,):
            raise Rejected(f"update of shape {values.shape}; the mask has {number} values")
        vector = np.zeros(self.travels.size, values.dtype)
        vector[self.travels] = values
        return vector

    def cut_update(self, update: Update) -> Update:
        """Return the update as it is sent."""
        return replace(update, delta=self.cut(update.delta))

    def restore(self, task: Task, memory: Mapping[str, Mapping[str, Any]]) -> Task:
        """Return the task with the whole model: the received values and the client's own."""
        own = memory.get(MASK, {}).get("own", self.initial[~self.travels])
        weights = np.empty(self.travels.size, np.float32)
        weights[self.travels], weights[~self.travels] = task.weights, own
        return replace(task, weights=weights)

    def keep(
        self, delta: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, Mapping[str, dict[str, Any]]]:
        """Return the update without the client's own tensors, and the memory with them."""
        return self.travelling(delta), {MASK: {"own": weights[~self.travels].copy()}}

    def travelling(self, vector: np.ndarray) -> np.ndarray:
        """Return a vector (d,) with zeros for the tensors that stay on each client."""
        return np.where(self.travels, vector, EMPTY.dtype.type(0))
