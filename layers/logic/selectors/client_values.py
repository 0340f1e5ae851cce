"""A number for each client, as a selector keeps it: two arrays, ascending by client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def column(memory: Mapping[str, Any], name: str, clients: np.ndarray, unknown: float) -> np.ndarray:
    """Return the number called `name` of each of `clients`, float64 (k,); `unknown` without one.

    Args:
        memory: of a selector.
        name: the name that was given to `with_numbers`.
        clients: int64 (k,).
        unknown: the value for a client without a number.
    """
    kept = memory.get(name)
    if not kept:
        return np.full(clients.size, unknown)
    known, numbers = kept["clients"], kept["numbers"]
    place = np.minimum(np.searchsorted(known, clients), known.size - 1)
    return np.where(known[place] == clients, numbers[place], unknown)


def with_numbers(
    memory: Mapping[str, Any], name: str, numbers: Mapping[int, float]
) -> dict[str, Any]:
    """Return the memory in which the numbers called `name` of these clients are new."""
    if not numbers:
        return dict(memory)
    kept = memory.get(name) or {"clients": np.zeros(0, np.int64), "numbers": np.zeros(0)}
    new = np.fromiter(numbers.keys(), np.int64, len(numbers))
    values = np.fromiter(numbers.values(), np.float64, len(numbers))
    old = ~np.isin(kept["clients"], new)
    clients = np.concatenate([kept["clients"][old], new])
    order = np.argsort(clients)
    both = np.concatenate([kept["numbers"][old], values])[order]
    return {**memory, name: {"clients": clients[order], "numbers": both}}
