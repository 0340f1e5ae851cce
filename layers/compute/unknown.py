"""What to answer to a name that a table does not have."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: str, names: Iterable[str], *, shown: int = 40) -> str:
    """Return one line that names the nearest names and those that there are."""
    known = sorted(names)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    rest = f" and {len(known) - shown} more" if len(known) > shown else ""
    return f"there is no {kind} {name!r}{hint} There are: {', '.join(known[:shown])}{rest}"
