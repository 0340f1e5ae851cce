"""Dispatch: the tasks of a round, lane by lane, and which of them are outstanding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from layers.logic.core.messages import StateLost, Task, in_pass
from layers.logic.core.plan import Plan
from layers.logic.core.state import ServerState
from layers.logic.round.lane import Lane
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.seeds import derive


class Dispatch:
    """Makes the tasks of a round, and knows which of them are outstanding.

    Args:
        state: state after the last round.
        plan: plan of this round.
        pipeline: the server sides of the hooks.
        logic: logic of the experiment.
        remembers: whether a client has its memory after a round (see `Peers.remembers`).
        excluded: clients of the plan that get no task, since a hook leaves them out or they did not
            answer the cohort's question.

    Attributes:
        lanes: the lanes in the order of the plan, then one for each late update.
    """

    def __init__(
        self,
        state: ServerState,
        plan: Plan,
        pipeline: ServerPipeline,
        logic: Logic,
        remembers: Callable[[int, int], bool],
        excluded: Collection[int] = (),
    ) -> None:
        self._state = state
        self._offers = plan.offers
        self._pipeline = pipeline
        self._seed, self._mask = logic.seed, logic.mask
        self._remembers = remembers
        self._training = logic.training_of(state.round + 1)
        self.lanes = _lanes(plan, state, logic)
        self._lane_of = {client: lane for lane in self.lanes for client in lane.clients}
        self._outstanding: dict[int, Task] = {one: state.in_flight[one] for one in plan.late}
        for client in excluded:
            self._lane_of[client].leave(client)

    @property
    def outstanding(self) -> Mapping[int, Task]:
        """The sent tasks of which an update may still come, by client, in the order of sending."""
        return MappingProxyType(self._outstanding)

    def first(self) -> list[Task]:
        """Return the task of the first client of each lane."""
        return [task for lane in self.lanes for task in self.next(lane)]

    def next(self, lane: Lane) -> list[Task]:
        """Return the task of the next client of a lane, if there is one."""
        if not lane.waiting:
            return []
        client = lane.waiting.popleft()
        last = self._state.last_accepted.get(client, 0)
        if lane.pass_of(client) > 1:  # this round's update of the pass before was accepted
            last = self._state.round + 1
        return [self._task(client, last if last and self._remembers(client, last) else 0)]

    def retry(self, lost: StateLost) -> list[Task]:
        """Return a task without earlier memory, for a client that lost its memory in the round."""
        task = self._outstanding.get(lost.client)
        if task is None or lost.round != task.round or not task.last_accepted_round:
            return []
        return [self._task(lost.client, 0)]

    def end(self, client: int) -> Lane:
        """End a client's task; return its lane."""
        del self._outstanding[client]
        return self._lane_of[client]

    def lane_of(self, client: int) -> Lane:
        """Return a client's lane."""
        return self._lane_of[client]

    def in_flight(self) -> dict[int, Task]:
        """Return the outstanding tasks without vectors, for the state."""
        return {client: task.without_vectors() for client, task in self._outstanding.items()}

    def _task(self, client: int, last_accepted_round: int) -> Task:
        lane, round = self._lane_of[client], self._state.round + 1
        pass_number = lane.pass_of(client)
        again = () if pass_number == 1 else (pass_number,)
        task = Task(
            round=round,
            client=client,
            seed=derive(self._seed, "train", round, client, *again),
            training=self._training,
            weights=lane.weights,
            buffers=lane.buffers,
            last_accepted_round=last_accepted_round,
            offer=self._offers,
            model_version=self._state.round,
            slots=in_pass({}, pass_number),
        )
        task = self._pipeline.send(task)
        if self._mask is not None:
            task = replace(task, weights=self._mask.cut(task.weights))
        self._outstanding[client] = task
        return task


def _lanes(plan: Plan, state: ServerState, logic: Logic) -> list[Lane]:
    """Return the plan's lanes, then one for each late update that it accepts."""
    groups = plan.groups or ("",) * len(plan.lanes)
    weights = plan.weights or (None,) * len(plan.lanes)
    starts = {group: logic.aggregator.start(state, group) for group in groups}
    lanes = [
        Lane(place, clients, *starts[group], group, weight, passes=plan.passes)
        for place, (clients, group, weight) in enumerate(
            zip(plan.lanes, groups, weights, strict=True)
        )
    ]
    for client in plan.late:
        staleness = state.round - state.in_flight[client].model_version
        lane = Lane(len(lanes), (client,), state.weights, state.buffers, staleness=staleness)
        lane.waiting.clear()  # it has its task already
        lanes.append(lane)
    return lanes
