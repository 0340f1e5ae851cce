"""Records of runs that were not made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from records import Record


def record(name: str = "a-s1", **columns: list[Any]) -> Record:
    """Return the record of a run that is under way, with these columns."""
    from records import Record

    return Record(name, [], None, 0.5, "avx2", columns)
