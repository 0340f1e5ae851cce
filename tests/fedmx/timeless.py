"""Records without what is no two times the same: real time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def timeless(records: Iterable[Mapping[str, Any]], *more: str) -> list[dict[str, Any]]:
    """Return records without their moments and durations, and without the keys in `more`."""
    left_out = ("seconds", *more)
    return [
        {k: v for k, v in record.items() if not k.endswith("_s") and k not in left_out}
        for record in records
    ]
