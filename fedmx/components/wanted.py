"""What a name of a user's own code may lead to: only to what its key in the experiment wants.

A class must be of the wanted kind, an object of such a class, and a function must say in its return
annotation that it makes one. So a file can call nothing that was not written as a component.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from layers.compute.data.dataset import Dataset
from layers.logic import Aggregator, Hook, Preset, Selector
from layers.logic.clock import Availability, Devices, Uploads


@dataclass(frozen=True)
class Wanted:
    """One kind of component.

    Attributes:
        text: what a class of this kind is, for messages.
        result: what a function of this kind returns, as its annotation says it.
        fits: whether a class is of this kind.
        otherwise: the end of the message about a function that says of no result.
    """

    text: str
    result: str
    fits: Callable[[type], bool]
    otherwise: str = ""


def _subclass(root: type) -> Wanted:
    return Wanted(
        f"a subclass of {root.__name__}", root.__name__, lambda one: issubclass(one, root)
    )


def _with(method: str, result: str) -> Wanted:
    return Wanted(f"a class with the method {method}", result, lambda one: _has(one, method))


def _has(one: type, *methods: str) -> bool:
    return all(callable(getattr(one, method, None)) for method in methods)


def _is_block(one: type) -> bool:
    """Return whether a class is a Gluon block; MXNet is not imported to tell."""
    return any(
        base.__name__ == "Block" and base.__module__ == "mxnet.gluon.block" for base in one.__mro__
    )


def _is_data(one: type) -> bool:
    arrays = issubclass(one, Dataset | Mapping | tuple)
    return arrays or _has(one, "load") or _has(one, "client", "sizes", "test")


WANTED: dict[str, Wanted] = {
    "preset": _subclass(Preset),
    "selector": _subclass(Selector),
    "aggregator": _subclass(Aggregator),
    "hook": _subclass(Hook),
    "devices": _subclass(Devices),
    "uploads": _subclass(Uploads),
    "availability": _subclass(Availability),
    "partition": _with("split", "Partition"),
    "schedule": _with("learning_rate", "Schedule"),
    "model": Wanted("a subclass of Gluon's Block", "Block", _is_block),
    "data set": Wanted(
        "a class with the method load, or with client, sizes and test",
        "Dataset",
        _is_data,
        ", or with -> dict: or -> tuple: if it returns arrays",
    ),
}
"""What each kind of component is, by its noun."""


def problem_with(kind: str, found: Any) -> str | None:
    """Return why an object is no component of a kind, or None if it is one.

    Args:
        kind: the noun, such as "selector".
        found: a class, function or object of a user's own module.
    """
    wanted = WANTED[kind]
    if inspect.isclass(found):
        return None if wanted.fits(found) else f"is no {kind}: it must be {wanted.text}"
    if not inspect.isroutine(found):
        if wanted.fits(type(found)):
            return None
        return f"is no {kind}: it must be {wanted.text}, or an object of one"
    result = _result_of(found)
    kind_of_result = typing.get_origin(result) or result
    if inspect.isclass(kind_of_result) and wanted.fits(kind_of_result):
        return None
    if isinstance(result, str) and result.rpartition(".")[2] == wanted.result:
        return None
    return (
        f"is a function that does not say that it makes a {kind}; "
        f"end its first line with -> {wanted.result}:{wanted.otherwise}"
    )


def _result_of(function: Callable[..., Any]) -> Any:
    """Return the return annotation of a function; as text if it names what is not imported."""
    try:
        result = inspect.signature(function).return_annotation
    except (TypeError, ValueError):  # code written in C may have no signature
        return None
    if not isinstance(result, str):
        return result
    try:
        return typing.get_type_hints(inspect.unwrap(function)).get("return")
    except Exception:  # noqa: BLE001 - an annotation may name a type-only import
        return result
