"""The large values in the slots of an update, on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from layers.logic.storage.stored_vector import StoredVector
from layers.logic.storage.update_store import UpdateStore

LEAST_BYTES = 1 << 16  # smaller values stay in memory

Slots: TypeAlias = "Mapping[str, Mapping[str, Any]]"


def slots_bytes(slots: Slots) -> int:
    """Return the bytes of the arrays and byte strings in slots."""
    return sum(
        value.nbytes if isinstance(value, np.ndarray) else len(value)
        for slot in slots.values()
        for value in slot.values()
        if isinstance(value, np.ndarray | bytes)
    )


@dataclass(frozen=True, eq=False)
class StoredSlots:
    """The slots of one update.

    Attributes:
        small: the values that stay in memory, by hook and name.
        large: the others.
    """

    small: dict[str, dict[str, Any]]
    large: Mapping[str, Mapping[str, _Stored]]

    @classmethod
    def of(cls, slots: Slots, store: UpdateStore) -> StoredSlots:
        """Return the slots, with the large values in `store`."""
        small: dict[str, dict[str, Any]] = {}
        large: dict[str, dict[str, _Stored]] = {}
        for key, slot in slots.items():
            small[key], large[key] = {}, {}
            for name, value in slot.items():
                if isinstance(value, np.ndarray) and value.nbytes >= LEAST_BYTES:
                    large[key][name] = _Stored(store.put(value), is_bytes=False)
                elif isinstance(value, bytes) and len(value) >= LEAST_BYTES:
                    array = np.frombuffer(value, np.uint8)
                    large[key][name] = _Stored(store.put(array), is_bytes=True)
                elif isinstance(value, np.ndarray):
                    small[key][name] = value.copy()  # a view would keep the whole message
                else:
                    small[key][name] = value
        return cls(small, large)

    def loaded(self) -> dict[str, dict[str, Any]]:
        """Return all slots in memory."""
        return {
            key: {**slot, **{name: kept.loaded() for name, kept in self.large[key].items()}}
            for key, slot in self.small.items()
        }


@dataclass(frozen=True, eq=False)
class _Stored:
    vector: StoredVector
    is_bytes: bool

    def loaded(self) -> np.ndarray | bytes:
        values = np.asarray(self.vector)
        return values.tobytes() if self.is_bytes else values
