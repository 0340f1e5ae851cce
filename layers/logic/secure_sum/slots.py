"""Lists of numbers, and of texts of bytes by client, in a slot from the other end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from layers.logic.core.messages import Slot
from layers.logic.errors import Rejected


def numbers_in(slot: Slot, name: str) -> list[int]:
    """Return the list of whole numbers from 0 with this name.

    Raises:
        Rejected: there is none.
    """
    found = slot.get(name)
    if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.ndim != 1:
        raise Rejected(f"a slot without a list of numbers: {name!r}")
    if found.size and found.min() < 0:
        raise Rejected(f"a slot with a negative number in {name!r}")
    return [int(one) for one in found]


def rows_in(slot: Slot, name: str, sizes: Iterable[int]) -> list[bytes]:
    """Return the texts of these sizes with this name.

    Raises:
        Rejected: there are not so many bytes.
    """
    found, sizes = slot.get(name), list(sizes)
    if not isinstance(found, bytes) or len(found) != sum(sizes):
        raise Rejected(f"a slot without {sum(sizes)} bytes: {name!r}")
    rows, start = [], 0
    for size in sizes:
        rows.append(found[start : start + size])
        start += size
    return rows


def by_client(slot: Slot, clients: str, rows: str, size: int) -> dict[int, bytes]:
    """Return the text of this size of each client in a list, which has each of them once.

    Raises:
        Rejected: they are not there.
    """
    listed = numbers_in(slot, clients)
    if len(set(listed)) < len(listed):
        raise Rejected(f"a slot with a client twice: {clients!r}")
    return dict(zip(listed, rows_in(slot, rows, [size] * len(listed)), strict=True))


def of_clients(rows: Mapping[int, bytes], clients: str, name: str) -> Slot:
    """Return the slot that `by_client` reads."""
    return {clients: listed(rows), name: b"".join(rows.values())}


def listed(numbers: Iterable[int] | Sequence[int]) -> np.ndarray:
    """Return what `numbers_in` reads."""
    return np.array(list(numbers), np.int64)
