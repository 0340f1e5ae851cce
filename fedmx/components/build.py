"""From a component's name and settings to the thing itself.

A table maps the names of one kind to classes or functions, or to ``"module:Name"`` strings, so that
listing names imports nothing. A key that ends with a colon is a family: ``gluon:resnet18_v1`` is
the entry ``"gluon:"`` with ``"resnet18_v1"`` as its first argument. Everything else with a colon is
a user's own ``package.module:Name``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedmx.components.component import Component
from fedmx.components.renamed import new_setting
from fedmx.components.settings import Signature, signature_of
from fedmx.components.text import first_line, unknown
from fedmx.components.user_code import UserCodeError, imported, place_of
from fedmx.errors import ExperimentError, FedmxError
from layers.compute.errors import ComputeError
from layers.logic.errors import LogicError


def resolve(kind: str, reference: Component, table: Mapping[str, Any], /) -> Any:
    """What ``reference`` names: an entry of ``table``, a user's own, or the object that it holds.

    ``kind`` is the noun for messages ("selector"). Raises ExperimentError in one line.
    """
    if reference.object is not None:
        return reference.object
    name = reference.name
    for known, entry in table.items():
        if name in (known, _spelling(entry)):
            return _loaded(entry)
        if known.endswith(":") and name.startswith(known) and name != known:
            return functools.partial(_loaded(entry), name.removeprefix(known))
    if name.startswith("<"):
        raise _error(reference, f"{reference.obstacle}; run again from that program")
    if ":" not in name:
        names = [f"{known}NAME" if known.endswith(":") else known for known in table]
        raise _error(reference, f"{unknown(kind, name, names)}, or your own as package.module:Name")
    try:
        return imported(name, reference.source.folder, reference.source.modules)
    except UserCodeError as error:
        raise _error(reference, str(error)) from error.__cause__


def bind(
    kind: str, reference: Component, table: Mapping[str, Any], /, **provided: Any
) -> Callable[[], Any]:
    """Checks a component's settings now; the function that it returns makes one at each call.

    ``provided`` is what the framework gives (``classes=10``) where the signature asks for it and
    the settings do not say otherwise. An object that is no class or function is itself returned.
    Raises one ExperimentError for all settings that are wrong, unknown or missing.
    """
    target = resolve(kind, reference, table)
    if not _makes(target):
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
            raise _error(reference, _complaint(reference, error)) from error

    return make


def build(kind: str, reference: Component, table: Mapping[str, Any], /, **provided: Any) -> Any:
    """Checks a component's settings against its signature and makes it; see ``bind``."""
    return bind(kind, reference, table, **provided)()


def _arguments(
    kind: str, reference: Component, signature: Signature, provided: Mapping[str, Any]
) -> dict[str, Any]:
    known = signature.settings
    arguments = {key: value for key, value in provided.items() if key in known}
    problems: dict[str, str] = {}
    for key, value in reference.settings.items():
        if key in known:
            try:
                arguments[key] = known[key].checked(value)
            except ValueError as error:
                problems[key] = str(error)
        elif (renamed := new_setting(key, known)) is not None:
            problems[key] = f"is called {renamed} now; write {renamed}"
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


def _error(reference: Component, text: str) -> ExperimentError:
    return ExperimentError(reference.source.problem(reference.where, text))


def _complaint(reference: Component, error: Exception) -> str:
    text, place = first_line(error), place_of(error)
    if isinstance(error, LogicError | ComputeError):
        return text  # written for users
    if not isinstance(error, ValueError):
        text = f"{reference.name} failed: {type(error).__name__}: {text}"
    return f"{text} ({place})" if place else text


def _makes(target: Any) -> bool:
    """Whether ``target`` is to be called; an object may be callable (a Gluon block) and is not."""
    return (
        inspect.isclass(target)
        or inspect.isroutine(target)
        or isinstance(target, functools.partial)
    )


def _spelling(entry: Any) -> str:
    """How a table's entry is spelled as ``module:Name``, which an object of it is written as."""
    if isinstance(entry, str):
        return entry
    return f"{getattr(entry, '__module__', '')}:{getattr(entry, '__qualname__', '')}"


def _loaded(entry: Any) -> Any:
    if not isinstance(entry, str):
        return entry
    module, _, qualified = entry.partition(":")
    return functools.reduce(getattr, qualified.split("."), importlib.import_module(module))
