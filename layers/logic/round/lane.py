"""The progress of one lane of a plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from layers.logic.core.aggregator import Contribution
from layers.logic.core.messages import EMPTY, Training, Update
from layers.logic.core.state import frozen
from layers.logic.storage import StoredSlots, UpdateStore, Vector, slots_bytes


@dataclass(eq=False)
class Lane:
    """A lane during a round: the clients that wait for a task, and the updates so far.

    Attributes:
        place: place of the lane in the plan.
        clients: clients of the lane, in order.
        start: float32 (d,), the weights that the lane starts from.
        buffers: float32 (b,), the buffers that the next client starts from.
        group: group of the lane (see `Plan.groups`).
        weight: weight of the lane in the mean, if the plan gives weights.
        staleness: by how many versions the model that the lane started from is older than the
            global model.
        passes: how many times the lane is gone through (see `Plan.passes`).
        waiting: the clients that wait for a task, in order; with several passes, each once for each
            pass that it has not begun.
        updates: the decoded updates of the accepted clients, in order.
    """

    place: int
    clients: tuple[int, ...]
    start: np.ndarray
    buffers: np.ndarray
    group: str = ""
    weight: float | None = None
    staleness: int = 0
    passes: int = 1
    waiting: deque[int] = field(init=False)
    updates: list[Update] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = deque(self.clients * self.passes)
        self.weights = self.start  # float32 (d,), the weights that the next client starts from
        self._delta: Vector = EMPTY
        self._stored = False  # whether its vectors wait where the store has room
        self._on_disk: list[StoredSlots] = []  # the slots of each update, once they are there

    @property
    def several(self) -> bool:
        """Whether several updates follow one another, so that only their sum is kept."""
        return len(self.clients) * self.passes > 1

    def pass_of(self, client: int) -> int:
        """Return the number of the pass that a client has begun last."""
        return 1 if self.passes == 1 else self.passes - self.waiting.count(client)

    def leave(self, client: int) -> None:
        """Take a client out of the passes that it has not begun."""
        self.waiting = deque(one for one in self.waiting if one != client)

    def add(self, update: Update) -> None:
        """Add the decoded update of the current client."""
        self.buffers = update.buffers
        if self.several:
            self.weights = frozen(self.weights + update.delta)
            update = replace(update, delta=EMPTY)
        else:
            self._delta = update.delta
        self.updates.append(update)

    def store(self, store: UpdateStore) -> None:
        """Let the vectors of the ended lane wait where the store has room for them.

        Raises:
            LogicError: the disk does not take them.
        """
        if self._stored:
            return
        delta = np.asarray(self._change())
        size = delta.nbytes + sum(slots_bytes(update.slots) for update in self.updates)
        held = store.hold(delta, size)
        if held is not None:
            self._delta, self.weights, self._stored = held, EMPTY, True
            if not self.several:
                self.updates = [replace(update, delta=held) for update in self.updates]
            return
        self._delta = store.put(delta)
        self._on_disk = [StoredSlots.of(update.slots, store) for update in self.updates]
        # A view of the message, however small, would keep all of its memory.
        self.buffers = frozen(self.buffers.copy())
        self.updates = [
            replace(update, delta=EMPTY, buffers=frozen(update.buffers.copy()), slots=kept.small)
            for update, kept in zip(self.updates, self._on_disk, strict=True)
        ]
        self.weights, self._stored = EMPTY, True

    def accepted(self) -> Iterator[Update]:
        """Yield the decoded updates with all that they have, one after the other."""
        if not self._on_disk:
            yield from self.updates
            return
        for update, kept in zip(self.updates, self._on_disk, strict=True):
            delta = EMPTY if self.several else np.asarray(self._delta)
            yield replace(update, delta=delta, slots=kept.loaded())

    def _change(self) -> Vector:
        return self.weights - self.start if self.several and not self._stored else self._delta

    def contribution(self, training: Training) -> Contribution:
        """Return the contribution of the lane, and drop its vectors here."""
        samples = {update.client: update.samples for update in self.updates}
        contribution = Contribution(
            lane=self.place,
            samples=sum(samples.values()),
            delta=self._change(),
            buffers=self.buffers,
            updates=tuple(self.updates),
            training=training,
            group=self.group,
            weight=self.weight,
            staleness=self.staleness,
        )
        self._delta, self.weights, self.buffers, self.updates = EMPTY, EMPTY, EMPTY, []
        self._on_disk = []
        return contribution
