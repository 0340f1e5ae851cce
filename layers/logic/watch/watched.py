"""The methods of halves as a watcher calls them; without a watcher they are the methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from layers.logic.core.hook import ClientSide
from layers.logic.core.messages import Task, Update
from layers.logic.watch.watcher import End, Station, Watcher

Method = TypeVar("Method", bound=Callable[..., Any])


def watched(watcher: Watcher | None, end: End, key: str, method: Method) -> Method:
    """Return a method of a hook's half, called through the watcher if there is one."""
    return method if watcher is None else cast(Method, _Watched(watcher, end, key, method))


def watched_half(watcher: Watcher | None, key: str, half: ClientSide) -> ClientSide:
    """Return a client side for its samples and gradients, which the watcher calls if there is one.

    It stands in for the half where its class is not asked for.
    """
    if watcher is None:
        return half
    methods = {
        name: watched(watcher, "client", key, getattr(half, name))
        for name in ("samples", "gradient")
    }
    return cast(ClientSide, SimpleNamespace(**methods))


def seen(watcher: Watcher | None, end: End, station: Station, message: Task | Update) -> None:
    """Show a task or an update to the watcher, if there is one."""
    if watcher is not None:
        watcher.saw(end, station, message)


class _Watched:
    """A bound method that says the same of itself as the method that it calls."""

    def __init__(self, watcher: Watcher, end: End, key: str, method: Callable[..., Any]) -> None:
        functools.update_wrapper(self, method)
        self.__self__ = getattr(method, "__self__", None)
        self.__func__ = getattr(method, "__func__", None)
        self._call = functools.partial(watcher.call, end, key, method)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)
