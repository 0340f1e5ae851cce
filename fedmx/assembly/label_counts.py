"""How many samples of each label a client has, as a table, and as a file of a run folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from layers.compute.data.targets import Targets

if TYPE_CHECKING:
    from fedmx.assembly.assembly import Assembly

Counts = npt.NDArray[np.int64]
"""Samples by client and class: int64 (clients, classes)."""

LABELLED = ("classes", "multi-label")
MOST_CLIENTS = 100
"""The clients in the file; of more, some evenly spaced ones."""


def count(labels: Sequence[npt.NDArray[Any]], targets: Targets) -> Counts:
    """Return the number of samples by client and class.

    Args:
        labels: the targets of each client's samples.
        targets: what they are; a sample with several labels counts for each of them, and other
            targets than labels are one column.
    """
    if targets.kind == "classes":
        rows = [np.bincount(one, minlength=targets.size) for one in labels]
    elif targets.kind == "multi-label":
        rows = [one.sum(axis=0) for one in labels]
    else:
        rows = [np.array([len(one)]) for one in labels]
    return np.array(rows, dtype=np.int64).reshape(len(labels), -1)


class LabelCounts(NamedTuple):
    """The samples of some clients of a run.

    Attributes:
        total: the number of all clients.
        clients: some of them, in order.
        counts: of these, their training samples by label.
    """

    total: int
    clients: Sequence[int]
    counts: Counts

    @classmethod
    def of(cls, assembly: Assembly) -> LabelCounts | None:
        """Return the counts of an experiment; None: its samples have no labels."""
        targets, total = assembly.data.dataset.targets, assembly.experiment.clients
        if targets.kind not in LABELLED:
            return None
        spaced = np.linspace(0, total - 1, min(total, MOST_CLIENTS))
        clients = spaced.round().astype(int).tolist()
        return cls(total, clients, count([assembly.labels_of(one) for one in clients], targets))

    def to_bytes(self) -> bytes:
        """Return the file."""
        lists = {"clients": list(self.clients), "counts": self.counts.tolist()}
        return json.dumps({"total": self.total, **lists}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> LabelCounts:
        """Return what a file holds.

        Raises:
            ValueError: it is not such a file.
        """
        try:
            total, clients, table = cls(**json.loads(content))
            ids, counts = np.array(clients, dtype=np.int64), np.array(table, dtype=np.int64)
            counted = counts.ndim == 2 and counts.size and counts.shape[0] <= MOST_CLIENTS
            if not counted or ids.shape != counts.shape[:1] or counts.min() < 0:
                raise ValueError("its table has another shape, or a negative number")
            if not 0 <= ids[0] <= ids[-1] < total:
                raise ValueError(f"there are {total} clients, and it has others")
            return cls(total, ids.tolist(), counts)
        except (TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None
