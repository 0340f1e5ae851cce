"""Forward and backward passes of one batch size, and a cache of those that an engine has made."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import numpy as np


class Step(Protocol):
    """The forward and the backward pass of one batch size, at the engine's weights.

    The caller fills `x` (batch, ...), `y` (batch, ...) and the other `inputs` of the loss, by name.
    `head` is the value of the loss's head after the last `run`.
    """

    x: np.ndarray
    y: np.ndarray
    inputs: dict[str, np.ndarray]
    head: np.ndarray

    def run(self) -> None:
        """Write the gradient, and finish before returning."""


class Scorer(Protocol):
    """The inference of one batch size; the caller fills `x` (batch, ...)."""

    x: np.ndarray

    def refresh(self) -> None:
        """Take the engine's current weights and buffers."""

    def run(self) -> list[np.ndarray]:
        """Return the outputs of the model and of its layers, each (batch, ...)."""


T = TypeVar("T")

_here = threading.local()


class GraphCache(Generic[T]):
    """The most recently used graphs, one for each batch size.

    The memory of a bound graph grows with its batch size, so the batch sizes in the cache add up to
    at most `rows` samples, or twice the largest batch if that is more.

    MXNet keeps scratch memory and random states for each thread, and a graph must run in the thread
    that made it. So a change of thread empties the cache.
    """

    def __init__(self, make: Callable[[int], T], rows: int):
        self._make = make
        self._rows = rows
        self._made: OrderedDict[int, T] = OrderedDict()
        self._thread: object = None

    def __getitem__(self, size: int) -> T:
        """Return the graph of this batch size, and make it if it is not in the cache."""
        try:
            thread = _here.mark
        except AttributeError:  # thread numbers are reused after a thread ends
            thread = _here.mark = object()
        if thread is not self._thread:
            self._made.clear()
            self._thread = thread
        made = self._made.get(size)
        if made is not None:
            self._made.move_to_end(size)
            return made
        made = self._made[size] = self._make(size)
        while len(self._made) > 1 and sum(self._made) > max(self._rows, 2 * max(self._made)):
            self._made.popitem(last=False)
        return made
