"""Turns pydantic's validation errors into one line each, in the words of the experiment file."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedmx.components.source import Source, Where
from fedmx.components.text import first_line, in_words, shown
from fedmx.errors import ExperimentError
from fedmx.experiment.keys import sections_of, unknown_key

_MOST = 100  # problems that are looked at; ExperimentError shows fewer

_LIMITS = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_KINDS = {
    "int": "must be a whole number",
    "float": "must be a number",
    "finite": "must be a finite number",
    "bool": "must be true or false",
    "string": "must be text",
    "path": "must be a path",
    "model": "must be a mapping (key: value)",
    "dict": "must be a mapping (key: value)",
    "tuple": "must be a list",
    "list": "must be a list",
}


class PlacedError(ValueError):
    """What a check of several values says of the one at ``where``."""

    def __init__(self, where: Where, text: str) -> None:
        super().__init__(text)
        self.where = where


def translated(error: ValidationError, schema: type[BaseModel], source: Source) -> ExperimentError:
    """All problems of ``error`` as one ExperimentError, in the order of the schema."""
    problems: dict[Where, str] = {}
    for details in error.errors(include_url=False)[:_MOST]:
        cause = details.get("ctx", {}).get("error")
        where = cause.where if isinstance(cause, PlacedError) else _place(details["loc"], schema)
        if details["type"] == "extra_forbidden":
            text = unknown_key(where, _holder(where, schema).model_fields, schema)
        elif len(details["loc"]) > len(where) and details["type"] not in _LIMITS:
            words = in_words(_holder(where, schema).model_fields[str(where[-1])].annotation)
            text = f"must be {words}, not {shown(details['input'])}"
        else:
            text = said(details)
        # A union reports each of its branches, in the same words.
        problems.setdefault(where, source.problem(where, text))
    return ExperimentError.of(source.name, list(problems.values()))


def said(details: ErrorDetails) -> str:
    """One of pydantic's error details in plain words."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return "is missing; add it"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"{words} {context[key]}, not {shown(value)}"
    if kind == "value_error":
        return first_line(context["error"])
    if kind == "string_pattern_mismatch":
        return f"must be letters, digits and . _ - without spaces, not {shown(value)}"
    words = _KINDS.get(kind.split("_")[0]) or details["msg"].replace("Input should", "must")
    return f"{words}, not {shown(value)}"


def _holder(where: Where, schema: type[BaseModel]) -> type[BaseModel]:
    """The section in which the last part of ``where`` is, or should be, a key."""
    for part in where[:-1]:
        schema = sections_of(schema).get(str(part)) or schema
    return schema


def _place(location: tuple[int | str, ...], schema: type[BaseModel]) -> Where:
    """``location`` without the names of union branches, which pydantic adds behind a key."""
    here: type[BaseModel] | None = schema
    where: Where = ()
    for part in location:
        if here is None and not isinstance(part, int):
            break
        where = (*where, part)
        here = sections_of(here).get(str(part)) if here else None
    return where
