"""What a partition is: a rule that gives each sample to exactly one client."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from layers.compute.data.errors import PartitionError

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


class Partition(Protocol):
    """A rule with its settings. Every sample goes to one client, and the same generator gives
    the same split.

    What decides the clients' shares is drawn before what decides the samples in them, so that a
    training and a test split that are divided with equal generators give a client the same share
    of both.
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
        """Give the indices into ``labels`` (n,) of each client's samples.

        ``users`` (n,) says whom each sample is from, if the data set knows. A client without a
        sample is refused unless ``allow_empty``. Raises PartitionError.
        """


def check_sizes(samples: int, clients: int, least: int, what: str) -> None:
    """Refuse what cannot give each of ``clients`` clients ``least`` of ``samples`` samples."""
    if clients < 1:
        raise PartitionError(f"{what}: the number of clients must be at least 1, not {clients}")
    if samples < clients * least:
        raise PartitionError(
            f"{what}: {samples} samples are too few for {clients} clients of at least {least}; "
            "use fewer clients or more data"
        )
