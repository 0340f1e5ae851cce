"""How far one lane of a plan has come."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from layers.logic.core.aggregator import Contribution
from layers.logic.core.messages import EMPTY, Training, Update
from layers.logic.core.state import frozen


@dataclass(eq=False)
class Lane:
    """A lane at work: who is next in it, and what its clients have returned so far.

    Attributes:
        place: of the lane in the plan.
        clients: of the lane, in order.
        start: float32 (d,), the weights that the lane starts from.
        buffers: float32 (b,), those that the next client starts from.
        group: of the lane (see `Plan.groups`).
        weight: of the lane in the mean, if the plan gives weights.
        staleness: how many versions older than the global model the model is that the lane
            started from.
    """

    place: int
    clients: tuple[int, ...]
    start: np.ndarray
    buffers: np.ndarray
    group: str = ""
    weight: float | None = None
    staleness: int = 0
    waiting: deque[int] = field(init=False)
    updates: list[Update] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = deque(self.clients)
        self.weights = self.start  # those that the next client starts from
        self._delta = EMPTY

    def add(self, update: Update) -> None:
        """Take the decoded update of the client whose turn it was."""
        self.buffers = update.buffers
        if len(self.clients) > 1:
            self.weights = frozen(self.weights + update.delta)
            update = replace(update, delta=EMPTY)
        else:
            self._delta = update.delta
        self.updates.append(update)

    def contribution(self, training: Training) -> Contribution:
        """Return what the lane brought, and keep none of its vectors."""
        several = len(self.clients) > 1
        contribution = Contribution(
            lane=self.place,
            samples=sum(update.samples for update in self.updates),
            delta=self.weights - self.start if several else self._delta,
            buffers=self.buffers,
            updates=tuple(self.updates),
            training=training,
            group=self.group,
            weight=self.weight,
            staleness=self.staleness,
        )
        self._delta, self.weights, self.buffers, self.updates = EMPTY, EMPTY, EMPTY, []
        return contribution
