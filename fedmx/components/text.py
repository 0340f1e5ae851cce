"""The wording of messages: values, types, places and unknown names."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from layers.settings import range_words

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Where = tuple[str | int, ...]
"""A place in an experiment: ("logic", "hooks", 0, "norm") for logic.hooks.0.norm."""

_TYPES: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    type(None): "null",
}


def shown(value: object, limit: int = 60) -> str:
    """Return a value as a message quotes it: on one line, and cut to ``limit`` characters."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        scalars = not any(isinstance(item, list | tuple | Mapping) for item in value)
        text = f"[{', '.join(shown(item, 20) for item in value[:9])}]" if scalars else ""
        return text if scalars and len(text) <= limit and len(value) < 9 else "a list"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a huge number"
    if not isinstance(value, str | int | float):
        return f"an object of {type(value).__qualname__}"
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit + 2 else text[:limit] + "…"


def dotted(where: Where) -> str:
    """Return a place in an experiment as users write it; keys with odd characters are quoted."""
    parts = (str(part) for part in where)
    return ".".join(
        part if part.isprintable() and len(part) <= 60 else ascii(part[:60]) for part in parts
    )


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article: "an Aggregator", "a Hook"."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def in_words(annotation: object) -> str:
    """Return a type annotation in plain words: ``int | None`` is "a whole number or null"."""
    if annotation in (typing.Any, object):
        return "a value"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        limits = range_words(arguments[1:])
        return f"{in_words(arguments[0])} {limits}".rstrip()
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(in_words(argument) for argument in arguments))
    if origin is typing.Literal:
        return " or ".join(shown(argument) for argument in arguments)
    kind = origin or annotation
    if isinstance(kind, type) and kind not in _TYPES:
        if issubclass(kind, Mapping):
            return "a mapping"
        if issubclass(kind, Sequence | set | frozenset):
            fixed = kind is tuple and arguments and ... not in arguments
            number = f"{len(arguments)} " if fixed else ""
            kinds = {
                typing.get_args(one)[0] if typing.get_origin(one) is typing.Annotated else one
                for one in arguments
            }
            if kinds <= {int, float, ...}:
                return f"a list of {number}numbers"
            return f"a list of {number}values" if fixed else "a list"
        return with_article(kind.__name__)
    return _TYPES.get(kind, str(annotation))


def takes_bool(annotation: object) -> bool:
    """Return whether a type takes true and false; in Python a bool is also an int."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return takes_bool(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return any(takes_bool(argument) for argument in arguments)
    if origin is typing.Literal:
        return any(isinstance(argument, bool) for argument in arguments)
    if origin in (list, tuple):
        return False  # whatever its items are
    return annotation not in (int, float, str, type(None))


def unknown(
    what: str,
    name: str,
    known: Iterable[str],
    listed: str = "there are",
    described: Mapping[str, str] | None = None,
) -> str:
    """Return a message about an unknown name, with the nearest known name and all of them.

    Args:
        what: the noun, such as "selector".
        name: the unknown name.
        known: the known names.
        listed: the words before the list of names.
        described: the text that the list shows instead of a name.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name[:100], names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    every = ", ".join((described or {}).get(one, one) for one in names) or "none"
    return f"unknown {what} {shown(name)}{hint} {listed}: {every}"


def first_line(error: BaseException, limit: int = 300) -> str:
    """Return the first line of an exception's text that is not blank, or the name of its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= limit else text[:limit] + "…"


_FOLDERS = re.compile(
    r"""(?<=['"])(?:~\w*|\.\.?)?/(?:[^'"\n/]+/)*(?=[^'"\n/]+['"])"""  # a quoted one may have blanks
    r"""|(?<![\w/.:~])(?:~\w*|\.\.?)?/(?:[^\s'":;,()/]+/)*(?=[^\s/])"""
)


def without_folders(text: str) -> str:
    """Return a text for another machine: of each path from /, ~, . or .. the last name alone."""
    return _FOLDERS.sub("", text)


LIMITS = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
"""Pydantic's errors about limits: the key of the limit in the error's context, and the words."""

_KINDS = {
    "int": "must be a whole number",
    "float": "must be a number",
    "finite": "must be a finite number",
    "predicate": "must be a finite number",
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
    if kind == "too_long":
        return f"must have at most {context['max_length']} items"
    if kind == "value_error":
        return first_line(context["error"], 2000)  # it may list all known names
    if kind == "string_pattern_mismatch":
        return f"must be letters, digits and . _ - without spaces, not {shown(value)}"
    words = _KINDS.get(kind.split("_")[0]) or details["msg"].replace("Input should", "must")
    return f"{words}, not {shown(value)}"
