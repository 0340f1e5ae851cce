"""The keys of an experiment's schema, and the messages about wrong ones."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from fedmx.components.component import Component, Source, Where, dotted
from fedmx.components.text import (
    LIMITS,
    in_words,
    new_key,
    renamed_text,
    shown,
    unknown,
    value_problem,
)
from fedmx.errors import ExperimentError


def sections_of(schema: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return the keys of a section, each with the section below it, or None for a value."""
    sections = {}
    for name, field in schema.model_fields.items():
        kinds = (kind for kind in _kinds(field.annotation) if issubclass(kind, BaseModel))
        sections[name] = next(kinds, None)
    return sections


def holds_component(schema: type[BaseModel], key: str) -> bool:
    """Return whether the key of a section takes a component or a list of components."""
    return Component in _kinds(schema.model_fields[key].annotation)


def keys_of(schema: type[BaseModel], above: Where = ()) -> Iterator[Where]:
    """Yield each place of the schema, sections included.

    Args:
        schema: the section.
        above: the place of the section.
    """
    for name, section in sections_of(schema).items():
        yield (*above, name)
        if section is not None:
            yield from keys_of(section, (*above, name))


def takes_null(root: type[BaseModel], where: Sequence[str]) -> bool:
    """Return whether null is a value of the key at a place of the schema."""
    return type(None) in _kinds(_annotation_at(root, where))


def takes_list(root: type[BaseModel], where: Sequence[str]) -> bool:
    """Return whether a list is a value of the key at a place of the schema."""
    return typing.get_origin(_annotation_at(root, where)) is tuple


def unknown_key(where: Where, keys: Iterable[str], root: type[BaseModel]) -> str:
    """Return the message about an unknown key.

    Args:
        where: the place; its last part is the unknown key.
        keys: the keys of that section.
        root: the schema of the whole experiment, in which the key may be elsewhere.
    """
    name, renamed = str(where[-1]), new_key(where)
    if renamed is not None:
        return renamed_text(dotted((*where[:-1], renamed)))
    elsewhere = [dotted(place) for place in keys_of(root) if place[-1] == name]
    if elsewhere:
        return f"is not a key here; did you mean {' or '.join(elsewhere)}?"
    return unknown("key", name, keys, listed="the keys here are")


def _annotation_at(root: type[BaseModel], where: Sequence[str]) -> Any:
    """Return the annotation of the key at a place of the schema."""
    for key in where[:-1]:
        below = sections_of(root)[key]
        assert below is not None
        root = below
    return root.model_fields[where[-1]].annotation


def _kinds(annotation: Any) -> list[type]:
    """Return the classes in an annotation: tuple, A and None for ``tuple[A, ...] | None``."""
    kinds = [annotation] if isinstance(annotation, type) else []
    for argument in typing.get_args(annotation):
        kinds += _kinds(argument)
    return kinds


_MAX_PROBLEMS = 100  # the error shows fewer


class PlacedError(ValueError):
    """A check of several values failed.

    Attributes:
        where: the place of the value that the message is about.
    """

    def __init__(self, where: Where, text: str) -> None:
        super().__init__(text)
        self.where = where


def experiment_error(
    error: ValidationError, schema: type[BaseModel], source: Source
) -> ExperimentError:
    """Return one ExperimentError with all problems of ``error``, in the order of the schema."""
    problems: dict[Where, str] = {}
    for details in error.errors(include_url=False)[:_MAX_PROBLEMS]:
        cause = details.get("ctx", {}).get("error")
        where = cause.where if isinstance(cause, PlacedError) else _place(details["loc"], schema)
        if details["type"] == "extra_forbidden":
            text = unknown_key(where, _section_at(where, schema).model_fields, schema)
        elif len(details["loc"]) > len(where) and details["type"] not in LIMITS:
            words = in_words(_section_at(where, schema).model_fields[str(where[-1])].annotation)
            text = f"must be {words}, not {shown(details['input'])}"
        else:
            text = value_problem(details)
        # A union reports a problem for each of its branches, in the same words.
        problems.setdefault(where, source.problem(where, text))
    return ExperimentError.of(source.name, list(problems.values()))


def _section_at(where: Where, schema: type[BaseModel]) -> type[BaseModel]:
    """Return the section in which the last part of ``where`` is a key, or should be one."""
    for part in where[:-1]:
        schema = sections_of(schema).get(str(part)) or schema
    return schema


def _place(location: tuple[int | str, ...], schema: type[BaseModel]) -> Where:
    """Return the place of a problem: pydantic's location without the names of union branches."""
    here: type[BaseModel] | None = schema
    where: Where = ()
    for part in location:
        if here is None and not isinstance(part, int):
            break
        where = (*where, part)
        here = sections_of(here).get(str(part)) if here else None
    return where
