"""A preset: an algorithm's name stands for a selector, an aggregator, hooks and a trainer."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from layers.logic.core.aggregator import Aggregator
from layers.logic.core.hook import Hook
from layers.logic.core.selector import Selector
from layers.logic.core.trainer import LocalSgd, Trainer
from layers.logic.errors import LogicError
from layers.settings import check, hints_of


@dataclass(frozen=True)
class Preset:
    """The parts of an algorithm.

    Attributes:
        selector: chooses the clients of a round.
        aggregator: turns contributions into the next state.
        hooks: change tasks and updates on their way.
        trainer: how a client makes its update.
        own: the tensors that stay on each client; see `own_tensors`.
    """

    selector: Selector
    aggregator: Aggregator
    hooks: tuple[Hook, ...] = ()
    trainer: Trainer = field(default_factory=LocalSgd)
    own: tuple[str, ...] = ()


SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:")
SETTINGS = SECTIONS[:2]
ENTRY = re.compile(r"    (\w+): (.+)")


def split_docstring(documented: Any) -> tuple[str, dict[str, list[str]]]:
    """Return the text outside of all sections, and the lines about each setting.

    Args:
        documented: a function, or a class, which inherits the lines about its bases' settings; its
            docstring is in Google style, or None, as under `python -OO`.
    """
    about: dict[str, list[str]] = {}
    for base in getattr(documented, "__bases__", ()):
        about |= split_docstring(base)[1]
    text: list[str] = []
    section, entry = "", ""
    for line in (inspect.getdoc(documented) or "").replace("``", "`").splitlines():
        if line in SECTIONS:
            section, entry = line, ""
        elif line and not line.startswith(" "):
            section = ""
        if not section:
            text.append(line)
        elif section in SETTINGS and line != section:
            found = ENTRY.fullmatch(line)
            if found:
                entry = found[1]
                about[entry] = [found[2]]
            elif entry and line.strip():
                about[entry].append(line.strip())
    return "\n".join(text).strip(), about


MakesPreset: TypeAlias = Callable[..., Preset]
NOTHING: Mapping[str, str] = MappingProxyType({})


def settings_of_parts(
    *, fixed: Mapping[str, str] = NOTHING
) -> Callable[[MakesPreset], MakesPreset]:
    """Return a decorator that lets a preset's function take the settings of its parts as well.

    The function returns the parts with the algorithm's own defaults:

        @settings_of_parts()
        def fedadam() -> Preset:
            return Preset(Uniform(), Mean("uniform"), (FedAdam(),))

    Decorated, it also takes `fraction` and `count` of the selector, `weights` of the aggregator and
    `beta1` of the hook, by keyword, with the types and texts of these classes and with the values
    of these parts as defaults. A given setting replaces that of the part.

    A parameter of the function itself replaces the parts' settings of the same name: the function
    passes it to the parts that need it. So two parts can share a setting.

    Args:
        fixed: the parts' settings that the preset does not take, each with the reason.

    Raises:
        TypeError: when the preset is defined, two parts have the same setting, and neither a
            parameter nor `fixed` decides between them; or `fixed` names a setting of no part.
    """

    def decorate(make: MakesPreset) -> MakesPreset:
        signature, hints = inspect.signature(make), typing.get_type_hints(make, include_extras=True)
        own = signature.parameters
        taken = _taken(make, own, fixed)

        @functools.wraps(make)
        def preset(*args: Any, **settings: Any) -> Preset:
            _check_known(make.__name__, settings, {**own, **taken}, fixed)
            own_settings = {name: value for name, value in settings.items() if name in own}
            part_settings = {name: value for name, value in settings.items() if name not in own}
            given = signature.bind_partial(*args, **own_settings).arguments
            check(given, hints, LogicError)
            return _with_settings(make(**given), part_settings, make.__name__)

        parameters = [one.replace(annotation=hints[name]) for name, one in own.items()]
        parameters += [one.parameter for one in taken.values()]
        decorated: Any = preset
        decorated.__signature__ = inspect.Signature(parameters, return_annotation=Preset)
        decorated.__annotations__ = {one.name: one.annotation for one in parameters}
        decorated.__doc__ = _docstring(make, taken, fixed)
        decorated.fixed = dict(fixed)
        return preset

    return decorate


def is_preset(made: Any) -> bool:
    """Return whether a function is a preset, which `settings_of_parts` has decorated."""
    return hasattr(made, "fixed") and inspect.isfunction(made)


def parts_of(preset: Preset) -> Iterator[Any]:
    """Yield the parts; all are frozen dataclasses."""
    yield from (part for _, part in kinds_of(preset))


def kinds_of(preset: Preset) -> Iterator[tuple[str, Any]]:
    """Yield the parts, each with the noun of its kind; a trainer only if it is not `LocalSgd`."""
    yield "selector", preset.selector
    yield "aggregator", preset.aggregator
    yield from (("hook", hook) for hook in preset.hooks)
    if preset.trainer != LocalSgd():
        yield "trainer", preset.trainer


@dataclass(frozen=True)
class _PartSetting:
    """A setting that a preset takes from one of its parts."""

    owner: type
    parameter: inspect.Parameter
    about: tuple[str, ...]


def _taken(
    make: MakesPreset, own: Mapping[str, inspect.Parameter], fixed: Mapping[str, str]
) -> dict[str, _PartSetting]:
    taken: dict[str, _PartSetting] = {}
    unknown = set(fixed)
    for part in parts_of(make()):
        owner = type(part)
        hints, about = _definition(owner)
        for name in _settings(part):
            unknown.discard(name)
            if name in own or name in fixed:
                continue
            if name in taken:
                raise TypeError(
                    f"{make.__name__}: {taken[name].owner.__name__} and {owner.__name__} both have "
                    f"a setting {name}; give the preset a parameter of that name, or fix it"
                )
            parameter = inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(part, name),
                annotation=hints[name],
            )
            taken[name] = _PartSetting(owner, parameter, about.get(name, ()))
    if unknown:
        raise TypeError(f"{make.__name__} fixes {sorted(unknown)}, which none of its parts has")
    return taken


def _settings(part: Any) -> list[str]:
    return [one.name for one in fields(part) if one.init]


def _definition(owner: type) -> tuple[Mapping[str, Any], dict[str, tuple[str, ...]]]:
    """Return the type of each setting of a class, and its text in the docstring."""
    _, about = split_docstring(owner)
    return hints_of(owner), {name: tuple(lines) for name, lines in about.items()}


def _check_known(
    name: str, settings: Mapping[str, Any], known: Mapping[str, Any], fixed: Mapping[str, str]
) -> None:
    for setting in settings:
        if setting in fixed:
            raise LogicError(f"the preset {name} does not take {setting}: {fixed[setting]}")
        if setting not in known:
            raise TypeError(f"{name}() has no setting {setting!r}; it has {', '.join(known)}")


def _with_settings(preset: Preset, settings: Mapping[str, Any], name: str) -> Preset:
    """Return the preset with these settings of its parts."""
    unused = dict(settings)
    changed = []
    for part in parts_of(preset):
        values = {key: unused.pop(key) for key in _settings(part) if key in unused}
        changed.append(replace(part, **values) if values else part)
    if unused:
        parts = ", ".join(type(part).__name__ for part in parts_of(preset))
        raise LogicError(
            f"the preset {name} is made of {parts} with these settings, and none of them has "
            f"{', '.join(unused)}; leave it out"
        )
    selector, aggregator, *others = changed
    number = len(preset.hooks)
    return replace(
        preset,
        selector=selector,
        aggregator=aggregator,
        hooks=tuple(others[:number]),
        trainer=next(iter(others[number:]), preset.trainer),
    )


def _docstring(
    make: MakesPreset, taken: Mapping[str, _PartSetting], fixed: Mapping[str, str]
) -> str:
    """Return the function's docstring, with the parts' settings and the fixed ones added."""
    text, about = split_docstring(make)
    for name, one in taken.items():
        about.setdefault(name, list(one.about))
    lines = [text]
    if fixed:
        lines += ["", *(f"It does not take `{name}`: {why}." for name, why in fixed.items())]
    if about:
        lines += ["", "Args:"]
        for name, about_lines in about.items():
            first, *more = about_lines or [""]
            lines += [f"    {name}: {first}".rstrip(), *(f"        {line}" for line in more)]
    return "\n".join(lines)
