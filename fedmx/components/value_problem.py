"""The wording of what is wrong with a value, from pydantic's details of a validation error."""

from __future__ import annotations

from pydantic_core import ErrorDetails

from fedmx.components.text import first_line, shown

LIMITS = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
"""Pydantic's types of errors about limits: the limit's key in the context, and the words."""

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


def value_problem(details: ErrorDetails) -> str:
    """Return in plain words what is wrong with a value."""
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return "is missing; add it"
    if kind in LIMITS:
        key, words = LIMITS[kind]
        return f"{words} {context[key]}, not {shown(value)}"
    if kind == "value_error":
        return first_line(context["error"])
    if kind == "string_pattern_mismatch":
        return f"must be letters, digits and . _ - without spaces, not {shown(value)}"
    words = _KINDS.get(kind.split("_")[0]) or details["msg"].replace("Input should", "must")
    return f"{words}, not {shown(value)}"
