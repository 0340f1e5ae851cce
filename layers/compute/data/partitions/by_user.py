"""By user: a client has what one writer or user, or some of them, made."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels, check_sizes


@dataclass(frozen=True)
class ByUser:
    """User u's samples go to client ``u mod clients``, undivided: nothing is left to chance.

    With as many clients as users each client is one user; with fewer, each has an equal number of
    users, give or take one. Users are numbered as the data set numbers them, so that a client has
    the same users' training and test samples.

    Source: Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018.
    """

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> list[Indices]:
        """Give each client's indices, in ascending order; raises PartitionError."""
        check_sizes(len(labels), clients, 0, "by-user")
        if users is None:
            raise PartitionError(
                "by-user: the data set does not say whom its samples are from; "
                "use another partition, or give it users"
            )
        owners = users % clients
        parts = [np.flatnonzero(owners == client) for client in range(clients)]
        empty = sum(len(part) == 0 for part in parts)
        if empty and not allow_empty:
            raise PartitionError(
                f"by-user: {len(np.unique(users))} users leave {empty} of {clients} clients "
                "without a sample; use fewer clients"
            )
        return parts
