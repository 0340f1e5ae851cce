"""The size of a text in a record: a record is JSON, in ASCII, where one character takes 1 to 12
bytes."""

from __future__ import annotations

import json

REASON_BYTES = 500  # of a client's reason that are recorded
TRACEBACK_BYTES = 20_000  # of the end of a client's traceback that are recorded


def recorded_bytes(text: str) -> int:
    """Return the bytes that a text takes in a record, without its quotation marks."""
    return len(json.dumps(text)) - 2


def shortened(text: str, most: int, *, from_end: bool = False) -> str:
    """Return the first characters of a text that take at most `most` bytes in a record.

    Args:
        text: the text.
        most: the most bytes, 0 or more.
        from_end: whether the last characters are kept in place of the first.
    """
    kept = text[-most:] if from_end else text[:most]  # each takes a byte or more
    if recorded_bytes(kept) <= most:
        return kept
    size = 0
    for number, one in enumerate(reversed(kept) if from_end else kept):
        size += recorded_bytes(one)
        if size > most:
            return kept[len(kept) - number :] if from_end else kept[:number]
    return kept
