"""A small balanced set of samples that every client trains on beside its own (FedShare)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from layers.logic.core.asset import Asset
from layers.logic.core.engine import ArrayData, Data
from layers.logic.core.hook import ClientHalf, Context, Hook
from layers.logic.errors import LogicError

ASSET = "shared"


@dataclass(frozen=True)
class FedShare(Hook):
    """Each client trains on its own samples and on a random part of a set G that all are given.

    Zhao et al. 2018, "Federated Learning with Non-IID Data", section 4: G is balanced over the
    classes, has the share beta of all training samples, and is taken out of them, so that nothing
    counts twice. The number of samples n_k, by which models are averaged, counts the shared ones.
    The server's half does nothing, and neither half keeps anything. G is an asset: it crosses the
    wire once to each client.

    Attributes:
        shared: beta, the size of G as a share of all training samples.
        part: what part of G a client trains on, the same samples every round.
    """

    shared: float = 0.05
    part: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.shared < 1:
            raise LogicError(f"shared must lie between 0 and 1, not {self.shared}")
        if not 0 < self.part <= 1:
            raise LogicError(f"part must be above 0 and at most 1, not {self.part}")

    @property
    def assets(self) -> Mapping[str, Asset]:
        """The set G."""
        return {ASSET: Asset(self.shared)}

    def client(self) -> ClientHalf:
        """Return the half that adds the shared samples."""
        return _Sharing(self.part)


class _Sharing(ClientHalf):
    def __init__(self, part: float) -> None:
        self._part = part

    def samples(self, data: Data, context: Context) -> Data:
        shared = context.assets[ASSET]
        number = max(round(self._part * len(shared)), 1)
        rows = context.run_rng().permutation(len(shared))[:number]  # the same in every round
        return ArrayData(
            np.concatenate([data.x, shared.x[np.sort(rows)]]),
            np.concatenate([data.y, shared.y[np.sort(rows)]]),
        )
