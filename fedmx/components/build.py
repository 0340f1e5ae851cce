"""Builds a component from its name and settings.

A table maps the names of one kind to classes or functions. A name that ends with a colon is a
family: ``gluon:resnet18_v1`` is the entry ``"gluon:"`` with "resnet18_v1" as its first argument.
Every other name with a colon is a user's own ``package.module:Name``. It may lead only to what its
place in the experiment takes: a class of that kind, an object of one, or a function whose return
annotation says so. So a file can call nothing that was not written as a component.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedmx.components.catalogue import KINDS, components, unknown_name
from fedmx.components.component import Component
from fedmx.components.settings import Setting, Signature, signature_of
from fedmx.components.text import first_line, unknown
from fedmx.components.user_code import UserCodeError, import_user_code, place_of
from fedmx.errors import ExperimentError, FedmxError
from layers.compute.data.dataset import Dataset
from layers.compute.errors import ComputeError
from layers.compute.losses import Loss
from layers.compute.metrics import Metric
from layers.compute.optimisers import Optimiser
from layers.logic import Aggregator, Hook, Preset, Selector
from layers.logic.checks.parts import check_kind, check_part
from layers.logic.clock import Availability, Devices, Uploads
from layers.logic.core.attack import Attack
from layers.logic.core.privacy import Privacy
from layers.logic.core.trainer import Trainer
from layers.logic.errors import LogicError


def resolve(kind: str, reference: Component, table: Mapping[str, Any] | None = None, /) -> Any:
    """Return the class or function of a component, without making the component.

    Args:
        kind: the noun for messages, such as "selector".
        reference: the component.
        table: the names of this kind, each with its class or function; None: those of fedmx.

    Returns:
        The object that the component holds, an entry of the table, or the user's own code.

    Raises:
        ExperimentError: the name is unknown, its module is not allowed or cannot be imported, or
            the name leads to something of another kind.
    """
    if reference.object is not None:
        return reference.object
    table = components()[KINDS[kind].plural] if table is None else table
    name = reference.name
    for key, entry in table.items():
        if name in (key, _entry_name(entry)):
            return entry
        if key.endswith(":") and name.startswith(key) and name != key:
            return functools.partial(entry, name.removeprefix(key))
    if name.startswith("<"):
        raise _error(reference, f"{reference.not_portable_reason}; run again from that program")
    if ":" not in name:
        raise _error(reference, unknown_name(kind, name, table))
    allowed = None if reference.given_by_hand else reference.source.modules
    try:
        found = import_user_code(name, reference.source.folder, allowed)
    except UserCodeError as error:
        raise _error(reference, str(error)) from error.__cause__
    problem = problem_with(kind, found)
    if problem is not None:
        raise _error(reference, f"{name} {problem}")
    return found


def bind(
    kind: str, reference: Component, table: Mapping[str, Any] | None = None, /, **provided: Any
) -> Callable[[], Any]:
    """Check a component's settings now, and return a function that makes one at each call.

    Args:
        kind: the noun for messages, such as "selector".
        reference: the component.
        table: the names of this kind; see `resolve`.
        **provided: arguments of fedmx, such as ``classes=10``. Each is used if the signature has
            the parameter and the settings do not give it.

    Returns:
        A function without parameters. If the component is an object, it returns that object.

    Raises:
        ExperimentError: settings are wrong, unknown or missing; one error lists them all.
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


def build(
    kind: str, reference: Component, table: Mapping[str, Any] | None = None, /, **provided: Any
) -> Any:
    """Check a component's settings, make it and check the result; see `bind`.

    Raises:
        ExperimentError: as for `bind`; or making it failed; or a hook, selector or aggregator is
            another kind of object, or its methods or settings are wrong.
    """
    made = bind(kind, reference, table, **provided)()
    if kind in _CHECKED:
        try:
            check_kind(kind, made, _CHECKED[kind])
            check_part(made)
        except LogicError as error:
            raise _error(reference, str(error)) from None
    return made


_ONLY_SETTINGS = ("data set", "devices", "uploads", "availability")
"""Kinds whose settings alone are checked early, because making a part may take long."""


def problems_of(reference: Component) -> list[str]:
    """Return what is wrong with a component and those in its settings, as far as they are known.

    A model is not built, a data set not loaded, and a user's own module not imported; they are
    checked when they are needed.
    """
    problems: dict[str, None] = {}
    for one in (reference, *reference.all_inner()):
        if one.kind == "model" or not all(map(_is_known, (one, *one.all_inner()))):
            continue
        try:
            (bind if one.kind in _ONLY_SETTINGS else build)(one.kind, one)
        except ExperimentError as error:
            problems |= dict.fromkeys(error.problems)
    return list(problems)


def _is_known(component: Component) -> bool:
    """Return whether a component is an object, or one of fedmx by its name."""
    if component.object is not None:
        return component.kind != "data set"  # a function may load a data set
    return component.is_of_fedmx


_CHECKED = {"hook": Hook, "selector": Selector, "aggregator": Aggregator}


def _arguments(
    kind: str, reference: Component, signature: Signature, provided: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the call, or raise one ExperimentError for all wrong settings."""
    known = signature.settings
    arguments = {key: value for key, value in provided.items() if key in known}
    problems: dict[str, str] = {}
    inner: list[str] = []
    for key, value in reference.settings.items():
        if key in known:
            try:
                given = value if known[key].part is None else _parts(reference, known[key])
                arguments[key] = known[key].convert(given)
            except ExperimentError as error:  # of a component in the setting, with its place
                inner += error.problems
            except ValueError as error:
                problems[key] = str(error)
        elif signature.open:
            arguments[key] = value
        else:
            names = {name: str(one) for name, one in known.items() if name not in provided}
            has = f"{kind} {reference.name} has"
            problems[key] = unknown("setting", key, names, listed=has, described=names)
    for key, setting in known.items():
        if setting.required and key not in {**arguments, **reference.settings}:
            problems[key] = f"is missing; {kind} {reference.name} needs it ({setting.type})"
    if problems or inner:
        source, where = reference.source, reference.where
        lines = [source.problem((*where, key), text) for key, text in problems.items()]
        raise ExperimentError.of(source.name, [*lines, *inner])
    return arguments


def _parts(reference: Component, setting: Setting) -> Any:
    """Return the part that a setting gives, or the list of them.

    Raises:
        ExperimentError: one is wrong.
        ValueError: the setting gives no component.
    """
    assert setting.part is not None
    made = [build(setting.part, one) for one in reference.inner(setting.name, setting.part)]
    if isinstance(reference.settings[setting.name], list | tuple):
        return made
    return made[0] if made else None


def _error(reference: Component, text: str) -> ExperimentError:
    return ExperimentError(reference.problem(text))


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
    return f"{getattr(entry, '__module__', '')}:{getattr(entry, '__qualname__', '')}"


@dataclass(frozen=True)
class Wanted:
    """What a user's own code must be to make a component of one kind.

    Attributes:
        text: the required kind of class, for messages.
        result: the return annotation of a function, for messages.
        fits: whether a class is right.
    """

    text: str
    result: str
    fits: Callable[[type], bool]

    @classmethod
    def subclass(cls, root: type) -> Wanted:
        """Return that a class must derive from ``root``."""
        name = root.__name__
        return cls(f"a subclass of {name}", name, lambda one: issubclass(one, root))

    @classmethod
    def method(cls, name: str, result: str) -> Wanted:
        """Return that a class must have a method."""
        return cls(f"a class with the method {name}", result, lambda one: _has(one, name))


def _has(one: type, *methods: str) -> bool:
    return all(callable(getattr(one, method, None)) for method in methods)


_MODELS = {
    ("mxnet.gluon.block", "Block"),
    ("torch.nn.modules.module", "Module"),
}


def _is_model(one: type) -> bool:
    """Return whether a class is a model of an engine, whose library is not imported to tell."""
    return any((base.__module__, base.__name__) in _MODELS for base in one.__mro__)


def _is_data(one: type) -> bool:
    arrays = issubclass(one, Dataset | Mapping | tuple)
    return arrays or _has(one, "load") or _has(one, "client", "sizes", "test")


WANTED: dict[str, Wanted] = {
    "preset": Wanted.subclass(Preset),
    "selector": Wanted.subclass(Selector),
    "aggregator": Wanted.subclass(Aggregator),
    "hook": Wanted.subclass(Hook),
    "trainer": Wanted.subclass(Trainer),
    "attack": Wanted.subclass(Attack),
    "privacy": Wanted.subclass(Privacy),
    "devices": Wanted.subclass(Devices),
    "uploads": Wanted.subclass(Uploads),
    "availability": Wanted.subclass(Availability),
    "partition": Wanted.method("split", "Partition"),
    "schedule": Wanted.method("learning_rate", "Schedule"),
    "optimiser": Wanted.subclass(Optimiser),
    "loss": Wanted.subclass(Loss),
    "metric": Wanted.subclass(Metric),
    "model": Wanted(
        "a subclass of Gluon's Block, or of PyTorch's Module for compute.engine: torch",
        "Block, or -> Module for compute.engine: torch",
        _is_model,
    ),
    "data set": Wanted(
        "a class with the method load, or with client, sizes and test",
        "Dataset, or -> dict or -> tuple for arrays",
        _is_data,
    ),
}
"""What each kind of component wants, by its noun."""


def problem_with(kind: str, found: Any) -> str | None:
    """Return why an object cannot be a component of a kind, or None if it can.

    Args:
        kind: the noun, such as "selector".
        found: a class, function or object of a user's own module.
    """
    wanted = WANTED[kind]
    if inspect.isclass(found):
        return None if wanted.fits(found) else f"is not usable as {kind}: it must be {wanted.text}"
    if not inspect.isroutine(found):
        if wanted.fits(type(found)):
            return None
        return f"is not usable as {kind}: it must be {wanted.text}, or an object of one"
    result = _result_of(found)
    kind_of_result = typing.get_origin(result) or result
    if inspect.isclass(kind_of_result) and wanted.fits(kind_of_result):
        return None
    if isinstance(result, str) and result.rpartition(".")[2] in re.findall(
        r"\b[A-Z]\w+", wanted.result
    ):
        return None
    return (
        f"is a function whose return annotation does not say that its result is the {kind}; "
        f"write -> {wanted.result}"
    )


def _result_of(function: Callable[..., Any]) -> Any:
    """Return the return annotation of a function, as text if its names are not imported."""
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
