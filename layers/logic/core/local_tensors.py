"""Local tensors: they belong to a client and never leave it; all others are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from layers.logic.core.messages import EMPTY, Layout, Task, Update
from layers.logic.errors import LogicError, Rejected

LOCAL_TENSORS = "mask"
"""The key of a client's own tensors in `ClientState.memory`."""

Initial: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""The model that a run starts from: float32 (d,) weights and (b,) buffers."""

GROUPS = ("head", "body", "norm")
"""The patterns that stand for a group of tensors of any model; see `own_tensors`."""


def own_tensors(patterns: Sequence[str], layout: Layout, buffers: Layout = ()) -> frozenset[str]:
    """Return the names of the tensors and buffers that patterns stand for.

    A pattern is a name in which ``*`` stands for any characters, or one of `GROUPS`: ``head`` is
    the last layer, ``body`` all others, ``norm`` every layer that has buffers, such as BatchNorm. A
    layer is what has the same name up to the last dot.

    Args:
        patterns: the patterns.
        layout: where each tensor lies in the flat vector.
        buffers: likewise for the buffers.

    Raises:
        LogicError: a pattern stands for nothing, or together they stand for all tensors.
    """
    names = [tensor.name for tensor in (*layout, *buffers)]
    head = _layer(layout[-1].name)
    with_buffers = {_layer(tensor.name) for tensor in buffers}
    groups = {
        "head": [name for name in names if _layer(name) == head],
        "body": [name for name in names if _layer(name) != head],
        "norm": [name for name in names if _layer(name) in with_buffers],
    }
    own: set[str] = set()
    for pattern in patterns:
        found = groups.get(pattern) or [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise LogicError(
                f"no tensor is called {pattern}; there are {', '.join(names)}, and the groups "
                f"{', '.join(GROUPS)}"
            )
        own.update(found)
    if own.issuperset(tensor.name for tensor in layout):
        raise LogicError(
            f"{', '.join(patterns)} stand for all tensors of the model, so that clients would send "
            "none; leave one out"
        )
    return frozenset(own)


def _layer(name: str) -> str:
    return name.rpartition(".")[0] or name


@dataclass(frozen=True, eq=False)
class LocalTensors:
    """Which of the model's tensors and buffers stay on each client; the others are sent.

    The server's vectors stay whole: their values of local tensors are the initial ones. A client
    starts with these and continues with its own. Where clients do not know the initial model
    (`Logic.initial`), the first task of each client brings the whole model.

    Attributes:
        layout: layout of the model's flat vector.
        own: the names of the tensors and buffers that stay on each client.
        buffers_layout: layout of the flat vector of buffers.

    Raises:
        LogicError: `own` names a tensor that the model does not have.
    """

    layout: Layout
    own: frozenset[str]
    buffers_layout: Layout = ()

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in (*self.layout, *self.buffers_layout)]
        if unknown := sorted(self.own - set(names)):
            raise LogicError(
                f"no tensor is called {', '.join(unknown)}; there are {', '.join(names)}"
            )

    @cached_property
    def travels(self) -> np.ndarray:
        """Which weights are sent, bool (d,)."""
        return _outside(self.layout, self.own)

    @cached_property
    def buffers_travel(self) -> np.ndarray:
        """Which buffers are sent, bool (b,)."""
        return _outside(self.buffers_layout, self.own)

    def cut_task(self, task: Task) -> Task:
        """Return the task as it is sent."""
        weights = task.weights[self.travels]
        return replace(task, weights=weights, buffers=self._cut_buffers(task.buffers))

    def cut_update(self, update: Update) -> Update:
        """Return the update as it is sent; an encoded one has no delta."""
        delta = update.delta[self.travels] if update.delta.size else update.delta
        return replace(update, delta=delta, buffers=self._cut_buffers(update.buffers))

    def expand(self, update: Update, buffers: np.ndarray) -> Update:
        """Return the update with vectors of full length.

        Its own weights do not change, and its own buffers are those of the server.

        Args:
            update: the update as it was sent.
            buffers: float32 (b,), the server's buffers.

        Raises:
            Rejected: another number of values is to be sent.
        """
        delta = update.delta
        if delta.size:
            delta = _expanded(delta, self.travels, np.zeros(self.travels.size, delta.dtype))
        if not self._own_buffers:
            return replace(update, delta=delta)
        return replace(
            update,
            delta=delta,
            buffers=_expanded(update.buffers, self.buffers_travel, buffers, "buffers"),
        )

    def restore(
        self, task: Task, memory: Mapping[str, Mapping[str, Any]], initial: Initial | None
    ) -> Task:
        """Return the task with the whole model: the received values and the client's own.

        Args:
            task: the task as it was sent.
            memory: the memory of the client.
            initial: the model that a client's own tensors start from, if it is known.
        """
        sizes = task.weights.size, task.buffers.size
        if sizes == (self.travels.size, self.buffers_travel.size):
            return task
        own = memory.get(LOCAL_TENSORS, {})
        start = (None, None) if initial is None else initial
        weights = _joined(task.weights, self.travels, own.get("own"), start[0])
        if not self._own_buffers:
            return replace(task, weights=weights)
        buffers = _joined(task.buffers, self.buffers_travel, own.get("buffers"), start[1])
        return replace(task, weights=weights, buffers=buffers)

    def kept(self, weights: np.ndarray, buffers: np.ndarray) -> Mapping[str, dict[str, Any]]:
        """Return the memory with a client's own tensors and buffers."""
        own = {"own": weights[~self.travels]}
        if self._own_buffers:
            own["buffers"] = buffers[~self.buffers_travel]
        return {LOCAL_TENSORS: own}

    def travelling(self, vector: np.ndarray) -> np.ndarray:
        """Return a vector (d,) with zeros for the tensors that stay on each client."""
        return np.where(self.travels, vector, EMPTY.dtype.type(0))

    def travelling_buffers(self, buffers: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return buffers (b,) with the values of `own` where they stay on each client."""
        return np.where(self.buffers_travel, buffers, own) if self._own_buffers else buffers

    @cached_property
    def _own_buffers(self) -> bool:
        return not self.buffers_travel.all()

    def _cut_buffers(self, buffers: np.ndarray) -> np.ndarray:
        return buffers[self.buffers_travel] if self._own_buffers else buffers


def _outside(layout: Layout, own: frozenset[str]) -> np.ndarray:
    outside = np.ones(layout[-1].stop if len(layout) else 0, bool)
    for tensor in layout:
        if tensor.name in own:
            outside[tensor.start : tensor.stop] = False
    return outside


def _expanded(
    values: np.ndarray, travels: np.ndarray, rest: np.ndarray, what: str = "update"
) -> np.ndarray:
    number = int(travels.sum())
    if values.shape != (number,):
        raise Rejected(f"{what} of shape {values.shape}; {number} values are to be sent")
    whole = rest.copy()
    whole[travels] = values
    return whole


def _joined(
    received: np.ndarray, travels: np.ndarray, own: np.ndarray | None, initial: np.ndarray | None
) -> np.ndarray:
    """Return the whole vector of the received values and of the own ones."""
    if own is None:
        if initial is None:
            raise LogicError("a task without the whole model, for a client without memory")
        own = initial[~travels]
    whole = np.empty(travels.size, np.float32)
    whole[travels], whole[~travels] = received, own
    return whole
