"""The translation of pydantic's validation errors into one plain line each."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from fedmx.components.source import Source, Where
from fedmx.components.text import in_words, shown
from fedmx.components.value_problem import LIMITS, value_problem
from fedmx.errors import ExperimentError
from fedmx.experiment.keys import sections_of, unknown_key

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
