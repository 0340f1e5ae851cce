"""Label shards: the samples are sorted by label and cut into shards; each client gets some."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.compute.data.errors import PartitionError
from layers.compute.data.partitions.partition import Indices, Labels, check_sizes


@dataclass(frozen=True)
class Shards:
    """Each client gets `per_client` random shards, of `per_client * clients` consecutive ones.

    With 2 shards most clients have two labels. 60,000 samples among 100 clients are 200 shards of
    300. When the shards cannot be equal, the first ones have one sample more.

    Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", 2017, section 3.

    Attributes:
        per_client: how many shards a client gets.
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
        """Return each client's indices, shard after shard; see `Partition.split`.

        There must be a sample for every shard, unless `allow_empty`.
        """
        check_sizes(len(labels), clients, 0 if allow_empty else self.per_client, "shards")
        return self.deal(labels, rng.permutation(self.per_client * clients))

    def deal(self, labels: Labels, permutation: Indices) -> list[Indices]:
        """Return each client's indices, when the shards are given out in this order."""
        # Stable, so that the split depends on the samples' order, not on the method of sorting.
        shards = np.array_split(np.argsort(labels, kind="stable"), len(permutation))
        hands = permutation.reshape(-1, self.per_client)
        return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]
