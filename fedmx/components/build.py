"""Builds a component from its name and settings.

A table maps the names of one kind to classes or functions, or to ``"module:Name"`` strings, so that
nothing is imported to list the names. A key that ends with a colon is a family:
``gluon:resnet18_v1`` is the entry ``"gluon:"`` with ``"resnet18_v1"`` as its first argument. Every
other name with a colon is a user's own ``package.module:Name``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedmx.components.component import Component
from fedmx.components.index import unknown_name
from fedmx.components.renamed import new_setting, renamed_text
from fedmx.components.settings import Signature, signature_of
from fedmx.components.text import first_line, unknown
from fedmx.components.user_code import UserCodeError, import_user_code, place_of
from fedmx.errors import ExperimentError, FedmxError
from layers.compute.errors import ComputeError
from layers.logic import Aggregator, Hook, Selector
from layers.logic.checks.parts import check_kind, check_part
from layers.logic.errors import LogicError


def resolve(kind: str, reference: Component, table: Mapping[str, Any], /) -> Any:
    """Return what a component refers to, without making it.

    Args:
        kind: the noun for messages, such as "selector".
        reference: the component.
        table: the names of this kind, each with its class, function or ``"module:Name"``.

    Returns:
        The object that the component holds, an entry of the table, or the user's own code.

    Raises:
        ExperimentError: the name is unknown, its module is not allowed or cannot be imported, or
            what it names is no component of this kind.
    """
    if reference.object is not None:
        return reference.object
    name = reference.name
    for key, entry in table.items():
        if name in (key, _entry_name(entry)):
            return _load(entry)
        if key.endswith(":") and name.startswith(key) and name != key:
            return functools.partial(_load(entry), name.removeprefix(key))
    if name.startswith("<"):
        raise _error(reference, f"{reference.not_portable_reason}; run again from that program")
    if ":" not in name:
        raise _error(reference, unknown_name(kind, name, table))
    allowed = None if reference.given_by_hand else reference.source.modules
    try:
        found = import_user_code(name, reference.source.folder, allowed)
    except UserCodeError as error:
        raise _error(reference, str(error)) from error.__cause__
    # Not at the top: a check of names imports no layer.
    from fedmx.components.wanted import problem_with

    problem = problem_with(kind, found)
    if problem is not None:
        raise _error(reference, f"{name} {problem}")
    return found


def bind(
    kind: str, reference: Component, table: Mapping[str, Any], /, **provided: Any
) -> Callable[[], Any]:
    """Check a component's settings now, and return a function that makes one at each call.

    Args:
        kind: the noun for messages, such as "selector".
        reference: the component.
        table: the names of this kind; see `resolve`.
        **provided: arguments of the framework, such as ``classes=10``. Each is used if the
            signature has such a parameter and the settings do not give it.

    Returns:
        A function without parameters. For an object that is no class or function, it returns that
        object.

    Raises:
        ExperimentError: settings are wrong, unknown or missing; one error tells all of them.
    """
    target = resolve(kind, reference, table)
    if not _is_factory(target):
        if reference.settings:
            raise _error(reference, f"{reference.name} is an object and takes no settings")
        return lambda: target
    signature = signature_of(target)
    arguments = _arguments(kind, reference, signature, provided)

    def make() -> Any:
        try:
            return target(**arguments)
        except FedmxError:
            raise
        except Exception as error:
            raise _error(reference, _failure_text(reference, error)) from error

    return make


def build(kind: str, reference: Component, table: Mapping[str, Any], /, **provided: Any) -> Any:
    """Check a component's settings and make it; see `bind`."""
    return bind(kind, reference, table, **provided)()


def _arguments(
    kind: str, reference: Component, signature: Signature, provided: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the call, or raise one ExperimentError for all wrong settings."""
    known = signature.settings
    arguments = {key: value for key, value in provided.items() if key in known}
    problems: dict[str, str] = {}
    for key, value in reference.settings.items():
        if key in known:
            try:
                arguments[key] = known[key].convert(value)
            except ValueError as error:
                problems[key] = str(error)
        elif (renamed := new_setting(key, known)) is not None:
            problems[key] = renamed_text(renamed)
        elif signature.open:
            arguments[key] = value
        else:
            names = {name: str(one) for name, one in known.items() if name not in provided}
            has = f"{kind} {reference.name} has"
            problems[key] = unknown("setting", key, names, listed=has, described=names)
    for key, setting in known.items():
        if setting.required and key not in {**arguments, **problems}:
            problems[key] = f"is missing; {kind} {reference.name} needs it ({setting.type})"
    if problems:
        source, where = reference.source, reference.where
        lines = [source.problem((*where, key), text) for key, text in problems.items()]
        raise ExperimentError.of(source.name, lines)
    return arguments


_PARTS = {"hook": Hook, "selector": Selector, "aggregator": Aggregator}


def build_part(kind: str, reference: Component, table: Mapping[str, Any]) -> Any:
    """Make a hook, a selector or an aggregator as `build` does, and check it.

    Raises:
        ExperimentError: as for `build`; or it is another kind of object, or its methods or settings
            are wrong.
    """
    made = build(kind, reference, table)
    try:
        check_kind(kind, made, _PARTS[kind])
        check_part(made)
    except LogicError as error:
        raise _error(reference, str(error)) from None
    return made


def _error(reference: Component, text: str) -> ExperimentError:
    return ExperimentError(reference.source.problem(reference.where, text))


def _failure_text(reference: Component, error: Exception) -> str:
    """Return in one line why making a component failed."""
    text, place = first_line(error), place_of(error)
    if isinstance(error, LogicError | ComputeError):
        return text  # it is written for users already
    if not isinstance(error, ValueError):
        text = f"{reference.name} failed: {type(error).__name__}: {text}"
    return f"{text} ({place})" if place else text


def _is_factory(target: Any) -> bool:
    """Return whether a call of ``target`` makes the component.

    A Gluon block can be called, too, and is the component itself.
    """
    return (
        inspect.isclass(target)
        or inspect.isroutine(target)
        or isinstance(target, functools.partial)
    )


def _entry_name(entry: Any) -> str:
    """Return ``module:Name`` of a table's entry, as a file names an object of this class."""
    if isinstance(entry, str):
        return entry
    return f"{getattr(entry, '__module__', '')}:{getattr(entry, '__qualname__', '')}"


def _load(entry: Any) -> Any:
    """Return the class or function of a table's entry."""
    if not isinstance(entry, str):
        return entry
    module, _, qualified = entry.partition(":")
    return functools.reduce(getattr, qualified.split("."), importlib.import_module(module))
