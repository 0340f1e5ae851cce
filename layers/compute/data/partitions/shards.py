"""Label shards: the samples sorted by label, cut into shards, and some shards to each client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels, check_sizes


@dataclass(frozen=True)
class Shards:
    """``per_client`` random shards a client, of ``per_client * clients`` consecutive ones.

    With 2 shards a client most clients see two labels. 60,000 samples among 100 clients are 200
    shards of 300. When the shards cannot be equal, the first ones have one sample more.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.
    """

    per_client: int = 2

    def __post_init__(self) -> None:
        if self.per_client < 1:
            raise PartitionError(f"shards: per_client must be at least 1, not {self.per_client}")

    def split(
        self,
        labels: Labels,
        users: Indices | None,
        clients: int,
        rng: np.random.Generator,
        *,
        allow_empty: bool = False,
    ) -> list[Indices]:
        """Give each client's indices, shard after shard; raises PartitionError.

        There must be a sample for every shard, unless ``allow_empty``.
        """
        check_sizes(len(labels), clients, 0 if allow_empty else self.per_client, "shards")
        return self.deal(labels, rng.permutation(self.per_client * clients))

    def deal(self, labels: Labels, permutation: Indices) -> list[Indices]:
        """Give client i the shards ``permutation[i * per_client : (i + 1) * per_client]``."""
        # Stable, so that the split is one of the samples' order and not of the sorting method.
        shards = np.array_split(np.argsort(labels, kind="stable"), len(permutation))
        hands = permutation.reshape(-1, self.per_client)
        return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]
