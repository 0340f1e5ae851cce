"""The aggregator: a fold that turns the updates of a round into the next state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layers.logic.core.declaration import Part
from layers.logic.core.hook import ServerContext
from layers.logic.core.messages import EMPTY, Slot, Training, Update
from layers.logic.core.state import ServerState
from layers.logic.core.survey import Question
from layers.logic.storage import Vector

AGGREGATE = "aggregator"
"""The key of an aggregator's memory in `ServerState.memory`."""


@dataclass(frozen=True, eq=False)
class Contribution:
    """The result of one lane.

    Attributes:
        lane: place of the lane in the round.
        samples: number of samples of all accepted clients of the lane.
        delta: float32 (d,), the last returned weights minus the weights that the lane started from;
            on disk if updates are kept there, which only `Trait.BY_SLICES` allows.
        buffers: float32 (b,), returned by the last client of the lane.
        updates: the decoded updates of the accepted clients, in order; without their deltas if the
            lane has several clients or is on disk.
        training: the training settings of the task of the lane's client, for a late update those of
            its earlier task; in a lane of several clients, those of this round.
        group: group of the lane (see `PlannedLane`).
        weight: weight of the lane in the mean, if the selector gives weights.
        staleness: by how many versions the model that the lane started from is older than the
            global model; 0 unless tasks may outlive their round.
        start: float32 (d,), the weights that the lane started from.
    """

    lane: int
    samples: int
    delta: Vector
    buffers: np.ndarray
    updates: tuple[Update, ...]
    training: Training = field(default_factory=Training)
    group: str = ""
    weight: float | None = None
    staleness: int = 0
    start: np.ndarray = field(default_factory=lambda: EMPTY)


class Aggregator(Part, ABC):
    """A fold over contributions; its settings are the attributes of a frozen dataclass.

    A round calls `begin`, `add` for each contribution in the order of the plan, `inquire` and, if
    it asks, `on_answers`, and `finish`. Its memory from round to round is
    ``state.memory[AGGREGATE]``, which `finish` may replace.
    """

    counts_empty: bool = False
    """Whether it also makes a model in a round without updates."""

    @property
    def least_updates(self) -> int:
        """The fewest accepted updates of a round that it can use."""
        return 0

    @property
    def most_staleness(self) -> int | None:
        """The largest staleness of an update that it uses; None: any."""
        return None

    def inspect(self, update: Update) -> None:
        """Check a decoded update; called when it arrives.

        Raises:
            Rejected: the aggregator cannot use it.
        """

    def start(self, state: ServerState, group: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights (d,) and buffers (b,) that the lanes of a group start from.

        By default they are the group's own model, if it has one, or the global model.
        """
        return state.models.get(group, (state.weights, state.buffers))

    def begin(self, state: ServerState, context: ServerContext) -> Any:
        """Return the value of the fold before the first contribution; by default that of `init`.

        A rule that draws, or trains on samples of the server, overrides this, and keeps of the
        context what it needs. The context is that of a hook without a client.
        """
        return self.init(state)

    def init(self, state: ServerState) -> Any:
        """Return the value of the fold before the first contribution; by default None."""
        return None

    @abstractmethod
    def add(self, total: Any, contribution: Contribution) -> Any:
        """Return the value of the fold with one more contribution; `total` may change in place."""

    def inquire(self, total: Any, state: ServerState) -> tuple[Question, Sequence[int]] | None:
        """Return a question about a model of the fold, and the clients to ask; None: no question.

        It is called once, after the last contribution. The question has the `weights` and `buffers`
        of that model. Each client costs one more model down, and its answer up.
        """
        return None

    def on_answers(self, total: Any, answers: Mapping[int, Slot]) -> Any:
        """Return the value of the fold with the answers by client, of those that answered.

        They come from clients, so that `finish` must check them.
        """
        return total

    @abstractmethod
    def finish(self, total: Any, state: ServerState) -> ServerState:
        """Return the state with new weights and buffers; called after at least one contribution.

        It may say how much each contribution counted (`ServerState.shares`).
        """
