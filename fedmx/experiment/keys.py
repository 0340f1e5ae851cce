"""The keys that an experiment's schema knows, and what to say of one that it does not."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from fedmx.components.component import Component
from fedmx.components.renamed import new_key
from fedmx.components.source import Where, dotted
from fedmx.components.text import unknown


def sections_of(schema: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """The keys of a section, each with the section that it opens, or None."""
    sections = {}
    for name, field in schema.model_fields.items():
        kinds = (kind for kind in _kinds(field.annotation) if issubclass(kind, BaseModel))
        sections[name] = next(kinds, None)
    return sections


def holds_component(schema: type[BaseModel], key: str) -> bool:
    """Whether ``key`` of ``schema`` takes a component, or a list of them."""
    return Component in _kinds(schema.model_fields[key].annotation)


def keys_of(schema: type[BaseModel], above: Where = ()) -> Iterator[Where]:
    """Every place that the schema knows, sections included."""
    for name, section in sections_of(schema).items():
        yield (*above, name)
        if section is not None:
            yield from keys_of(section, (*above, name))


def unknown_key(where: Where, keys: Iterable[str], root: type[BaseModel]) -> str:
    """What to say of the last part of ``where``, which is none of ``keys``."""
    name, renamed = str(where[-1]), new_key(where)
    if renamed is not None:
        return f"is called {renamed} now; write {dotted((*where[:-1], renamed))}"
    elsewhere = [dotted(place) for place in keys_of(root) if place[-1] == name]
    if elsewhere:
        return f"is not a key here; did you mean {' or '.join(elsewhere)}?"
    return unknown("key", name, keys, listed="the keys here are")


def _kinds(annotation: Any) -> list[type]:
    """The classes that an annotation is made of: ``tuple[A, ...] | None`` of tuple, A and None."""
    kinds = [annotation] if isinstance(annotation, type) else []
    for argument in typing.get_args(annotation):
        kinds += _kinds(argument)
    return kinds
