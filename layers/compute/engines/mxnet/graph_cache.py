"""Bound graphs by batch size: the recently used ones are kept, for the thread that uses them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_here = threading.local()


def _this_thread() -> object:
    """Return an object of this thread's own; a thread's number is given away again when it ends."""
    if not hasattr(_here, "mark"):
        _here.mark = object()
    mark: object = _here.mark
    return mark


class BySize(Generic[T]):
    """The last things made for a batch size, for `rows` samples in all, or for two of the largest.

    What a bound graph keeps in memory grows with its batch: so samples are counted, not graphs.

    MXNet keeps scratch memory and random states by thread, so that what was made in one thread must
    not run in another: a change of thread empties the cache.
    """

    def __init__(self, make: Callable[[int], T], rows: int):
        self._make = make
        self._rows = rows
        self._made: OrderedDict[int, T] = OrderedDict()
        self._thread: object = None

    def __getitem__(self, size: int) -> T:
        """Return the thing for this batch size, made now if it is not there."""
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
