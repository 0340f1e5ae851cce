"""Where the code of a part stands, as messages say it: file and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def place_of_code(code: Callable[..., Any] | type) -> str:
    """Return ``FILE:LINE`` of a function, method or class; empty if its source is not known."""
    if not inspect.isclass(code):
        plain = getattr(inspect.unwrap(code), "__code__", None)
        return f"{plain.co_filename}:{plain.co_firstlineno}" if plain is not None else ""
    try:
        return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"
    except (OSError, TypeError):
        return ""


def at_place(code: Callable[..., Any] | type) -> str:
    """Return `place_of_code` in brackets after a space; empty if it is not known."""
    place = place_of_code(code)
    return f" ({place})" if place else ""
