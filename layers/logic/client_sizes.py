"""Client ids and their numbers of samples, for populations of a million."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

Made = TypeVar("Made")

_MOST = (1 << 63) - 1


class ClientSizes(Mapping[int, int]):
    """The number of samples by client, backed by arrays.

    Values that derive from all sizes are computed once and cached (`once`). So the time of a
    selector that needs only the cohort's clients does not depend on the population's size.

    Args:
        clients: the clients, ascending: a range, or int64 (n,).
        sizes: their numbers of samples, int64 (n,), or one number for all.
    """

    def __init__(self, clients: range | np.ndarray, sizes: np.ndarray | int) -> None:
        self._ids = clients
        self._sizes = sizes
        self._made: dict[object, Any] = {}

    @classmethod
    def of(cls, samples: Mapping[int, int]) -> ClientSizes:
        """Return a mapping as `ClientSizes`; a `ClientSizes` is returned as it is."""
        if isinstance(samples, ClientSizes):
            return samples
        clients = np.array(sorted(samples), np.int64)
        # Clients on other machines may report absurd sizes.
        sizes = [min(samples[client], _MOST) for client in clients.tolist()]
        return cls(clients, np.array(sizes, np.int64))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids if isinstance(self._ids, range) else self._ids.tolist())

    def __contains__(self, client: object) -> bool:
        return self._place(client) is not None

    def __getitem__(self, client: int) -> int:
        place = self._place(client)
        if place is None:
            raise KeyError(client)
        return self._sizes if isinstance(self._sizes, int) else int(self._sizes[place])

    @property
    def end(self) -> int:
        """The number after the highest client; 0 if there is none."""
        return int(self._ids[-1]) + 1 if len(self._ids) else 0

    @cached_property
    def clients(self) -> Sequence[int]:
        """The clients that have samples, ascending: a range if possible, otherwise a tuple."""
        if isinstance(self._ids, range) and self._all_have_samples:
            return self._ids
        return tuple(self.ids.tolist())

    @cached_property
    def ids(self) -> np.ndarray:
        """The clients that have samples, int64 (m,), ascending."""
        ids = np.asarray(self._ids, np.int64)
        return ids if self._all_have_samples else ids[self._having]

    @cached_property
    def sizes(self) -> np.ndarray:
        """The numbers of samples of `ids`, int64 (m,)."""
        if isinstance(self._sizes, int):
            return np.full(len(self.ids), self._sizes, np.int64)
        return self._sizes if self._all_have_samples else self._sizes[self._having]

    def only(self, clients: np.ndarray) -> ClientSizes:
        """Return the sizes of some of the clients, int64 (k,), ascending."""
        if isinstance(self._sizes, int):
            return ClientSizes(clients, self._sizes)
        return ClientSizes(clients, self._sizes[np.searchsorted(self._ids, clients)])

    def once(self, name: object, make: Callable[[], Made]) -> Made:
        """Return the result of `make`, which is called at the first use of a name only."""
        if name not in self._made:
            self._made[name] = make()
        return cast("Made", self._made[name])

    @cached_property
    def _having(self) -> np.ndarray:
        return np.broadcast_to(np.asarray(self._sizes) > 0, len(self._ids))

    @cached_property
    def _all_have_samples(self) -> bool:
        if isinstance(self._sizes, int):
            return self._sizes > 0 or not len(self._ids)
        return bool(self._having.all())

    def _place(self, client: object) -> int | None:
        if not isinstance(client, int | np.integer):
            return None
        if isinstance(self._ids, range):
            return int(client) if client in self._ids else None
        place = int(np.searchsorted(self._ids, client))
        return place if place < len(self._ids) and self._ids[place] == client else None
