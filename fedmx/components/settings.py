"""The settings of a component: the typed parameters of the class or function that makes it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from fedmx.components.text import dotted, in_words, shown, takes_bool, value_problem, with_article

_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

INNER_PARTS = {
    "layers.logic.core.selector:Selector": "selector",
    "layers.logic.core.aggregator:Aggregator": "aggregator",
    "layers.logic.core.hook:Hook": "hook",
    "layers.logic.core.trainer:Trainer": "trainer",
    "layers.compute.losses.loss:Loss": "loss",
    "layers.compute.metrics.metric:Metric": "metric",
}
"""The classes of the parts that a setting can take, each with the noun of its kind."""


def noun_of_part(one: type) -> str | None:
    """Return the noun of the kind that a class is a part of; None: it is no part.

    The layers are not imported to tell.
    """
    bases = (f"{base.__module__}:{base.__qualname__}" for base in one.__mro__)
    return next((INNER_PARTS[base] for base in bases if base in INNER_PARTS), None)


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: its name in a file.
        annotation: its annotated type; Any if there is none.
        required: whether it must be given.
        default: its value if it is not given; None if it is required.
    """

    name: str
    annotation: Any
    required: bool
    default: Any = None

    @property
    def type(self) -> str:
        """The type in words, such as "a whole number or null"."""
        return in_words(self.annotation) if self.part is None else with_article(self.part)

    @property
    def part(self) -> str | None:
        """The noun of the kind of part that it takes, one or several; None: it takes none."""
        return _part_in(self.annotation)

    def __str__(self) -> str:
        made = repr(self.default) == "<factory>"  # a dataclass makes a new one for each object
        return self.name if self.required or made else f"{self.name} = {spelled(self.default)}"

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of its value; an empty one, which allows all, if there is none."""
        adapter = _adapter(self.annotation)
        try:
            schema = adapter.json_schema() if adapter is not None else {}
        except PydanticUserError:  # a class of fedmx, or a check that is a function
            schema = {}
        return {} if "$defs" in schema else schema

    def convert(self, value: Any) -> Any:
        """Return ``value`` in the annotated type; a list can become a tuple.

        Raises:
            ValueError: it has another type; the text says which type is needed.
        """
        if isinstance(value, bool) and not takes_bool(self.annotation):
            raise ValueError(f"must be {self.type}, not {shown(value)}")
        adapter = _adapter(self.annotation)
        if adapter is not None:
            try:
                value = adapter.validate_python(value)
            except ValidationError as error:
                details = error.errors()
                whole = ("is_instance", "missing", "too_")  # what is wrong is the value as a whole
                if len(details) == 1 and not details[0]["type"].startswith(whole):
                    where = dotted(details[0]["loc"])
                    text = value_problem(details[0])
                    raise ValueError(f"{where}: {text}" if where else text) from None
                raise ValueError(f"must be {self.type}, not {shown(value)}") from None
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"must be {self.type}, not NaN")
        return value


@dataclass(frozen=True)
class Signature:
    """The settings of a class or function.

    Attributes:
        settings: the settings by name.
        open: whether it takes other settings, too (``**kwargs``).
    """

    settings: Mapping[str, Setting]
    open: bool


def spelled(value: Any) -> str:
    """Return the value of a setting as texts show it; of a part, its name."""
    if noun_of_part(type(value)) is None:
        return shown(value)
    return str(vars(type(value)).get("name", type(value).__name__))


def signature_of(target: Callable[..., Any]) -> Signature:
    """Return the settings of a class or function.

    If its parameters cannot be read, the signature is open and has no settings.
    """
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # code written in C may have no signature
        return Signature({}, open=True)
    hints = _hints(target)
    settings = {
        one.name: Setting(
            one.name,
            hints.get(one.name, Any),
            one.default is one.empty,
            None if one.default is one.empty else one.default,
        )
        for one in parameters
        if one.kind in _KEYWORD
    }
    return Signature(settings, any(one.kind is one.VAR_KEYWORD for one in parameters))


def _hints(target: Any) -> dict[str, Any]:
    """Return the annotated type of each parameter."""
    while isinstance(target, functools.partial):
        target = target.func
    holder = target
    if inspect.isclass(target) and not dataclasses.is_dataclass(target):
        holder = target.__init__
    try:
        return typing.get_type_hints(holder, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may name a type-only import
        return _hints_one_by_one(holder)


def _hints_one_by_one(holder: Any) -> dict[str, Any]:
    """Return the type of each parameter; Any where the annotation cannot be evaluated."""
    module = inspect.getmodule(holder)
    hints: dict[str, Any] = {}
    for name, annotation in getattr(holder, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(
                alone, vars(module) if module else {}, include_extras=True
            )
        except Exception:  # noqa: BLE001 - as above; this parameter alone stays unchecked
            hints[name] = Any
    return hints


def _part_in(annotation: Any) -> str | None:
    """Return the noun of the first kind of part in an annotation."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return noun_of_part(annotation)
    return next(filter(None, map(_part_in, typing.get_args(annotation))), None)


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    for config in (ConfigDict(arbitrary_types_allowed=True), None):
        try:
            return TypeAdapter(annotation, config=config)
        except PydanticUserError:  # the type has its own configuration, or pydantic cannot check it
            continue
    return None
