"""The keys of an experiment: type and meaning of each, and the messages about wrong ones."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from fedmx.components.component import Component, Source
from fedmx.components.section import Rules, Section, Takes, WrongParts
from fedmx.components.text import (
    LIMITS,
    Where,
    dotted,
    in_words,
    shown,
    unknown,
    value_problem,
)
from fedmx.errors import ExperimentError

_MAX_PROBLEMS = 100  # the error shows fewer


@dataclass(frozen=True)
class Key:
    """A key of an experiment.

    Attributes:
        name: its name in its section.
        field: its definition in the section.
        above: the section that has it.
    """

    name: str
    field: FieldInfo
    above: type[Section]

    @property
    def section(self) -> type[Section] | None:
        """The section that it takes; None for a value."""
        return next((one for one in self._classes if issubclass(one, Section)), None)

    @property
    def takes_component(self) -> bool:
        """Whether it takes a component or a list of components."""
        return Component in self._classes

    @property
    def takes_null(self) -> bool:
        """Whether null is a value."""
        return type(None) in self._classes

    @property
    def takes_list(self) -> bool:
        """Whether a list is a value."""
        return typing.get_origin(self.field.annotation) is tuple

    @property
    def takes_mapping(self) -> bool:
        """Whether a mapping without fixed keys is a value."""
        kinds = (self.field.annotation, *typing.get_args(self.field.annotation))
        return any(typing.get_origin(kind) is dict for kind in kinds)

    @property
    def rules(self) -> Rules:
        """What digests and forks do with it."""
        return next((one for one in self.field.metadata if isinstance(one, Rules)), Rules())

    @property
    def takes(self) -> str:
        """What it takes, in Markdown."""
        return _type_text(self.field.annotation, self.field.metadata)

    @property
    def default(self) -> str:
        """Its value where it is left out, in Markdown; empty for a section."""
        if self.field.is_required():
            return "must be given"
        value = self.field.get_default()
        if isinstance(value, Section):
            return ""
        if value is None or isinstance(value, bool):
            return shown(value)
        if isinstance(value, int | float):
            return f"{value:g}"
        return f"`{value.name if isinstance(value, Component) else value or '[]'}`"

    @property
    def text(self) -> str:
        """What it is for, in Markdown; of a section its own docstring, if the key has none."""
        text = _texts(self.above.__module__).get((self.above.__name__, self.name))
        text = text or self.field.description or inspect.getdoc(self.section) or ""
        return " ".join(text.split())

    @property
    def _classes(self) -> list[type]:
        return _classes_in(self.field.annotation)


@cache
def keys_in(section: type[Section]) -> Mapping[str, Key]:
    """Return the keys of a section by name."""
    return {name: Key(name, field, section) for name, field in section.model_fields.items()}


def keys_of(
    section: type[Section], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Key]]:
    """Yield each key of a section and of the sections in it, with its place.

    Args:
        section: the section.
        above: the place of the section.
    """
    for name, key in keys_in(section).items():
        yield (*above, name), key
        if key.section is not None:
            yield from keys_of(key.section, (*above, name))


def unknown_key(where: Where, section: type[Section], root: type[Section]) -> str:
    """Return the message about an unknown key.

    Args:
        where: the place; its last part is the unknown key.
        section: the section that does not have it.
        root: the schema of the whole experiment, in which the key may be elsewhere.
    """
    name = str(where[-1])
    elsewhere = [dotted(place) for place, key in keys_of(root) if key.name == name]
    if elsewhere:
        return f"is not a key here; did you mean {' or '.join(elsewhere)}?"
    return unknown("key", name, keys_in(section), listed="the keys here are")


def plain(text: str) -> str:
    """Return a text without the marks of code, and with the texts of links alone."""
    text = re.sub(r" *\(\[more\]\([^)]*\)\)", "", text)
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("`", "")


class PlacedError(ValueError):
    """Checks of several values together failed.

    Attributes:
        problems: a message for each place that one is about.
    """

    def __init__(self, problems: Mapping[Where, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.problems = problems


def experiment_error(
    error: ValidationError, root: type[Section], source: Source
) -> ExperimentError:
    """Return one ExperimentError with all problems of ``error``, in the order of the schema."""
    problems: dict[Where, Sequence[str]] = {}
    for details in error.errors()[:_MAX_PROBLEMS]:
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, PlacedError):
            problems |= {
                where: [source.problem(where, text)] for where, text in cause.problems.items()
            }
            continue
        where = _place(details["loc"], root)
        if isinstance(cause, WrongParts):
            problems.setdefault(where, cause.problems)
            continue
        section = _section_at(where, root)
        if details["type"] == "extra_forbidden":
            text = unknown_key(where, section, root)
        elif len(details["loc"]) > len(where) and details["type"] not in LIMITS:
            words = in_words(section.model_fields[str(where[-1])].annotation)
            text = f"must be {words}, not {shown(details['input'])}"
        else:
            text = value_problem(details)
        # A union reports a problem for each of its branches, in the same words.
        problems.setdefault(where, [source.problem(where, text)])
    return ExperimentError.of(source.name, [line for lines in problems.values() for line in lines])


def _section_at(where: Where, root: type[Section]) -> type[Section]:
    """Return the section in which the last part of ``where`` is a key, or should be one."""
    for part in where[:-1]:
        root = _section_below(root, part) or root
    return root


def _section_below(section: type[Section], key: str | int) -> type[Section] | None:
    found = keys_in(section).get(str(key))
    return None if found is None else found.section


def _place(location: Where, root: type[Section]) -> Where:
    """Return the place of a problem: pydantic's location without the names of union branches."""
    here: type[Section] | None = root
    where: Where = ()
    in_mapping = False
    for part in location:
        if here is None and not in_mapping and not isinstance(part, int):
            break
        where = (*where, part)
        key = keys_in(here).get(str(part)) if here else None
        here = None if key is None else key.section
        in_mapping = key is not None and key.takes_mapping
    return where


def _classes_in(annotation: Any) -> list[type]:
    """Return the classes in an annotation: tuple, A and None for ``tuple[A, ...] | None``."""
    classes = [annotation] if isinstance(annotation, type) else []
    for argument in typing.get_args(annotation):
        classes += _classes_in(argument)
    return classes


def _type_text(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Return a type in words: ``int | None`` is "whole number or null"."""
    for one in metadata:
        if isinstance(one, Takes):
            return one.text
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_text(arguments[0], arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_type_text, arguments))
    if origin is typing.Literal:
        *others, last = (f"`{argument}`" for argument in arguments)
        return f"{', '.join(others)} or {last}" if others else last
    if origin is tuple:
        return f"list of {_type_text(arguments[0])}s"
    if annotation is Component:
        return "component"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        short = annotation.short_form
        return "section" if short is None else f"section or {_type_text(short)}"
    return in_words(annotation).removeprefix("a ")


@cache
def _texts(module: str) -> Mapping[tuple[str, str], str]:
    """Return the string below each field of the classes in a module, by class and field."""
    texts = {}
    for section in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(section, ast.ClassDef):
            continue
        for field, below in itertools.pairwise(section.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[section.name, name] = text
    return texts
