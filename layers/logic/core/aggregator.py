"""An aggregator turns the updates of a round into the next state; it is a fold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from layers.logic.core.messages import Training, Update
from layers.logic.core.state import ServerState

if TYPE_CHECKING:
    from layers.logic.round.logic import Logic

AGGREGATE = "aggregator"
"""The key of what an aggregator keeps in `ServerState.memory`."""


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
        training: how the clients of this round train.
        group: of the lane (see `Plan.groups`).
        weight: of the lane in the mean, if the plan gives weights.
        staleness: how many versions older than the global model the model is that the lane started
            from; 0 unless the plan accepts late updates.
    """

    lane: int
    samples: int
    delta: np.ndarray
    buffers: np.ndarray
    updates: tuple[Update, ...]
    training: Training = field(default_factory=Training)
    group: str = ""
    weight: float | None = None
    staleness: int = 0


class Aggregator(ABC):
    """A fold over contributions; the settings are the attributes of a frozen dataclass.

    What it keeps from round to round is ``state.memory[AGGREGATE]``, which `finish` may replace.
    """

    received_loss: bool = False
    """Whether the clients must report the received model's loss (see `Training.loss`)."""

    each_client: bool = False
    """Whether it looks at single clients' updates, so that a lane must have one client only."""

    def check(self, logic: Logic) -> None:  # noqa: B027 (nothing to check, as a rule)
        """Raise `LogicError` if this cannot work in `logic`; called before anything runs."""

    def inspect(self, update: Update) -> None:  # noqa: B027
        """Raise `Rejected` for a decoded update that cannot be used; called when it arrives."""

    def start(self, state: ServerState, group: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights (d,) and buffers (b,) that the lanes of a group start from."""
        return state.weights, state.buffers

    @abstractmethod
    def init(self, state: ServerState) -> Any:
        """Return the value of the fold before the first contribution."""

    @abstractmethod
    def add(self, total: Any, contribution: Contribution) -> Any:
        """Return the value of the fold with one contribution more; `total` may be reused."""

    @abstractmethod
    def finish(self, total: Any, state: ServerState) -> ServerState:
        """Return the state with new weights and buffers; called with one contribution or more."""
