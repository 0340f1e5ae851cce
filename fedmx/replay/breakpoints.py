"""A place to stop at: a method of a hook or of one of its halves, as a user names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedmx.components.text import unknown
from fedmx.errors import FedmxError
from layers.logic import ClientSide, Logic, ServerSide
from layers.logic.round.hook_order import keyed
from layers.logic.watch.watcher import End

METHODS: Mapping[End, tuple[str, ...]] = {
    "client": ("receive", "samples", "gradient", "send"),
    "server": ("send", "receive", "on_accepted", "conclude"),
}
"""The methods of each half at which a replay can stop."""


@dataclass(frozen=True)
class Breakpoint:
    """A method of one half of the hooks of an experiment.

    Attributes:
        places: end, key of the hook and name of the method, of all that are meant.
    """

    places: frozenset[tuple[End, str, str]]

    @classmethod
    def of(cls, name: str, logic: Logic) -> Breakpoint:
        """Return the place that ``module:Class.method`` or ``Class.method`` names.

        The class is that of a half or of the hook itself.

        Raises:
            FedmxError: no hook of the experiment has such a method; the text lists those there are.
        """
        places: dict[str, set[tuple[End, str, str]]] = {}
        own: list[str] = []
        for place, (half, hook) in _methods(logic):
            fedmx_own = half.__module__.startswith("layers.")
            own.append(f"{hook.__qualname__ if fedmx_own else _name_of(half)}.{place[2]}")
            for one in (half, hook):
                for spelling in (_name_of(one), one.__qualname__):
                    places.setdefault(f"{spelling}.{place[2]}", set()).add(place)
        if name not in places:
            text = unknown("method of a hook", name, own)
            raise FedmxError(f"--break {name}: {text}" if own else f"--break {name}: no hooks")
        return cls(frozenset(places[name]))

    def matches(self, end: End, key: str, method: Callable[..., Any]) -> bool:
        """Return whether a method is meant."""
        return (end, key, method.__name__) in self.places


def _methods(logic: Logic) -> Iterator[tuple[tuple[End, str, str], tuple[type, type]]]:
    """Yield each method that a half defines, with the classes of the half and of the hook."""
    for key, hook in keyed(logic.hooks).items():
        halves: tuple[tuple[End, ClientSide | ServerSide, type], ...] = (
            ("server", hook.server(), ServerSide),
            ("client", hook.client(), ClientSide),
        )
        for end, half, plain in halves:
            for method in METHODS[end]:
                if getattr(type(half), method) is not getattr(plain, method):
                    yield (end, key, method), (type(half), type(hook))


def _name_of(found: type) -> str:
    return f"{found.__module__}:{found.__qualname__}"
