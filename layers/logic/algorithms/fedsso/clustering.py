"""What FedSSO knows of its clients: its selector keeps it, its aggregator and reports read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from layers.logic.core.selector import SELECT
from layers.logic.core.state import Memory, ServerState
from layers.logic.errors import LogicError

STRATA = "strata"


@dataclass(frozen=True)
class Stratum:
    """How many clients a stratum has, and how many samples they have together."""

    clients: int
    samples: int


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Clustering:
    """N clients and their strata; N is 0 before the clients were clustered.

    Attributes:
        clients: int64 (N,), ascending.
        labels: int64 (N,), the cluster of each; -1: in none.
        samples: int64 (N,), of each.
        points: float64 (N, 2), principal components of what was clustered; NaN for a client that
            sent nothing to cluster.
        strata: by name. Another selector may keep these alone.
    """

    clients: np.ndarray = field(default_factory=_none)
    labels: np.ndarray = field(default_factory=_none)
    samples: np.ndarray = field(default_factory=_none)
    points: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    strata: Mapping[str, Stratum] = field(default_factory=dict)

    def memory(self) -> Memory:
        """Return the clustering as named arrays and numbers."""
        return {
            "clients": self.clients,
            "labels": self.labels,
            "samples": self.samples,
            "points": self.points,
            STRATA: {name: asdict(stratum) for name, stratum in self.strata.items()},
        }

    @classmethod
    def of(cls, memory: Mapping[str, Any]) -> Clustering:
        """Return the clustering that a selector kept; an empty one if it keeps no strata.

        Raises:
            LogicError: the arrays are not as `memory` makes them.
        """
        if STRATA not in memory:
            return cls()
        columns = [memory.get(name, _none()) for name in ("clients", "labels", "samples")]
        points = memory.get("points", np.zeros((0, 2)))
        shape = np.shape(columns[0])
        whole = len(shape) == 1 and all(_is_array(one, "i", shape) for one in columns)
        try:
            strata = {name: Stratum(**kept) for name, kept in memory[STRATA].items()}
        except (AttributeError, TypeError):
            whole = False
        if not whole or not _is_array(points, "f", (*shape, 2)):
            raise LogicError(
                "the strata in the selector's memory cannot be read; start from a checkpoint that "
                "a run with the selector fedsso has written"
            )
        clients, labels, samples = columns
        return cls(clients, labels, samples, points, strata)

    @classmethod
    def of_state(cls, state: ServerState) -> Clustering:
        """Return the clustering that the selector kept in this state."""
        return cls.of(state.memory.get(SELECT, {}))

    def kept_in(self, state: ServerState) -> ServerState:
        """Return the state in which the selector keeps this clustering."""
        return replace(state, memory={**state.memory, SELECT: self.memory()})


def _is_array(value: Any, kind: str, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == kind and value.shape == shape
