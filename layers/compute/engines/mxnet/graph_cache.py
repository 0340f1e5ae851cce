"""Bound graphs by batch size: those used last are kept, for the thread that uses them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_here = threading.local()


def _this_thread() -> object:
    """Return an object of this thread's own; a thread's number is used again when it has ended."""
    if not hasattr(_here, "mark"):
        _here.mark = object()
    mark: object = _here.mark
    return mark


class GraphCache(Generic[T]):
    """The graphs used last, one for each batch size.

    A bound graph's memory grows with its batch size. So the cache is limited to batches of `rows`
    samples in all, whatever the number of graphs; it always has room for two of the largest batch.

    MXNet keeps scratch memory and random states by thread, and a graph that was made in one thread
    must not run in another. So a change of thread empties the cache.
    """

    def __init__(self, make: Callable[[int], T], rows: int):
        self._make = make
        self._rows = rows
        self._made: OrderedDict[int, T] = OrderedDict()
        self._thread: object = None

    def __getitem__(self, size: int) -> T:
        """Return the graph for this batch size; make it if it is not kept."""
        thread = _this_thread()
        if thread is not self._thread:
            self._made.clear()
            self._thread = thread
        if size in self._made:
            self._made.move_to_end(size)
        else:
            self._made[size] = self._make(size)
            while len(self._made) > 1 and sum(self._made) > max(self._rows, 2 * max(self._made)):
                self._made.popitem(last=False)
        return self._made[size]
