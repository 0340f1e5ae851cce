"""The message for a name that a table does not have."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: str, names: Iterable[str], *, shown: int = 40) -> str:
    """Return one line with the nearest names and with the names that there are.

    Args:
        kind: what is named, such as "model".
        name: the unknown name.
        names: the names that there are.
        shown: how many of them the line lists at most.
    """
    known = sorted(names)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ";"
    rest = f" and {len(known) - shown} more" if len(known) > shown else ""
    return f"unknown {kind} {name!r}{hint} there are: {', '.join(known[:shown])}{rest}"
