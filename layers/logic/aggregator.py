"""An aggregator turns the updates of a round into the next state; it is a fold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from layers.logic.exchange import Update
from layers.logic.state import ServerState


@dataclass(frozen=True, eq=False)
class Contribution:
    """What one lane brought.

    Attributes:
        lane: its place in the plan.
        samples: of all its clients that counted.
        delta: float32 (d,), the last returned weights minus those that the lane started from.
        buffers: float32 (b,) that the lane's last client returned.
        updates: of its clients that counted, in order, as decoded; in a lane of several clients
            without their deltas.
    """

    lane: int
    samples: int
    delta: np.ndarray
    buffers: np.ndarray
    updates: tuple[Update, ...]


class Aggregator(ABC):
    """A fold over contributions; the settings are the attributes of a frozen dataclass."""

    @abstractmethod
    def init(self, state: ServerState) -> Any:
        """Return the value of the fold before the first contribution."""

    @abstractmethod
    def add(self, total: Any, contribution: Contribution) -> Any:
        """Return the value of the fold with one contribution more; `total` may be reused."""

    @abstractmethod
    def finish(self, total: Any, state: ServerState) -> ServerState:
        """Return the state with new weights and buffers; called with one contribution or more."""
