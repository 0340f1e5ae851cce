"""The fold: contributions are added in the order of the plan, not in the order of arrival."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from layers.logic.checks.returned import added, finished, guarded
from layers.logic.core.aggregator import Aggregator
from layers.logic.core.declaration import Condition, Trait, refusal
from layers.logic.core.messages import Training
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.round.lane import Lane
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.storage import UpdateStore


class Fold:
    """Folds each lane as soon as it and all lanes before it have ended.

    Args:
        lanes: the lanes in the order of the plan.
        state: state after the last round.
        aggregator: adds contributions.
        pipeline: the server sides, which process each accepted update.
        training: how the clients of this round train.
        wait: whether no lane is folded before `rest`, since a hook asks the clients first.
        store: where the lanes' vectors wait until they are folded; None: in memory.

    Raises:
        LogicError: `store` is given, and the aggregator needs whole updates.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        state: ServerState,
        aggregator: Aggregator,
        pipeline: ServerPipeline,
        training: Training,
        wait: bool = False,
        store: UpdateStore | None = None,
    ) -> None:
        self._lanes = lanes
        self._aggregator = aggregator
        self._pipeline = pipeline
        self._training = training
        self._wait = wait
        self._store = store
        if store is not None:
            check_by_slices(aggregator)
        self._round = state.round + 1
        self._total: Any = guarded(aggregator.init, state, round=self._round)
        self._next = 0  # place of the lane to fold next
        self._contributions = 0

    def keep(self, lane: Lane) -> None:
        """Let the vectors of an ended lane wait where the store has room for them.

        Raises:
            LogicError: the disk does not take them.
        """
        if self._store is not None:
            lane.store(self._store)

    def advance(self, ended: Container[int]) -> None:
        """Fold the lanes whose clients have all ended, up to the first lane with another client."""
        while not self._wait and self._next < len(self._lanes):
            lane = self._lanes[self._next]
            if not all(client in ended for client in lane.clients):
                return
            self._fold(lane)
            self._next += 1

    def rest(self, ended: Container[int]) -> None:
        """Fold the remaining lanes at the end of the round, except those with clients in flight."""
        for lane in self._lanes[self._next :]:
            if all(client in ended for client in lane.clients):
                self._fold(lane)
        self._next = len(self._lanes)

    def finish(self, state: ServerState) -> ServerState:
        """Return the state after aggregation; without contributions, return `state`.

        Raises:
            PartFailed: the aggregator failed, or returned no state of the right form.
        """
        if not self._contributions:
            return state
        return finished(self._aggregator, self._total, state, self._pipeline.layout)

    def _fold(self, lane: Lane) -> None:
        if not lane.updates:
            return
        self.keep(lane)
        if self._pipeline.notes_accepted:
            for update in lane.accepted():
                self._pipeline.on_accepted(update)
        contribution = lane.contribution(self._training_of(lane))
        self._total = added(self._aggregator, self._total, contribution, self._round)
        self._contributions += 1

    def _training_of(self, lane: Lane) -> Training:
        """Return how a lane's client trained; of several clients, how those of the round do."""
        if len(lane.clients) > 1:
            return self._training
        return self._pipeline.training_of(lane.clients[0])


def check_by_slices(aggregator: Aggregator) -> None:
    """Check that an aggregator can fold updates that are on disk.

    Raises:
        LogicError: it needs whole updates.
    """
    if Trait.BY_SLICES not in aggregator.provides:
        raise LogicError(refusal(Condition.ON_DISK, Trait.BY_SLICES, "", aggregator))
