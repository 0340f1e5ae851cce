"""The clusters of clients that a stratified selector found, from a run's last checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx.report.records.summary import RunSummary
from fedmx.run import RunError, RunFolder
from layers.logic.algorithms.fedsso import NOISE as NOISE
from layers.logic.algorithms.fedsso import Clustering
from layers.logic.core.selector import SELECT
from layers.logic.errors import LogicError


@dataclass(frozen=True, eq=False)
class Strata:
    """N clients with their clusters.

    Attributes:
        clients: int (N,), their ids.
        labels: int (N,), the cluster of each; -1: in none.
        points: float (N, 2), the first principal components of the clustered values; NaN for a
            client without a value.
    """

    clients: np.ndarray
    labels: np.ndarray
    points: np.ndarray

    @property
    def clusters(self) -> dict[int, int]:
        """The number of clients in each cluster, in the order of the labels, without noise."""
        labels, sizes = np.unique(self.labels[self.labels != NOISE], return_counts=True)
        return dict(zip(labels.tolist(), sizes.tolist(), strict=True))

    @property
    def noise(self) -> int:
        """The number of clients in no cluster."""
        return int(np.count_nonzero(self.labels == NOISE))

    def by_cluster(self) -> np.ndarray:
        """Return the clients' indices in the order of their clusters, noise last: int (N,)."""
        places: np.ndarray = np.lexsort((self.clients, self.labels, self.labels == NOISE))
        return places


def strata_of(run: RunFolder, summary: RunSummary) -> Strata | None:
    """Return the clusters of a run, or None if it has none or no readable checkpoint."""
    # A checkpoint can be large, so it is read only if the selector may have clusters.
    named = (summary.settings.get(path) for path in ("logic.preset", "logic.selector"))
    if not any("fedsso" in str(name).lower() for name in named):
        return None
    try:
        checkpoint = run.latest_checkpoint()
    except RunError:
        return None
    state = {} if checkpoint is None else checkpoint.state
    try:
        found = Clustering.of(state["server"]["memory"][SELECT])
    except (KeyError, TypeError, LogicError):
        return None
    if found.clients.size == 0:
        return None
    return Strata(found.clients, found.labels, found.points)
