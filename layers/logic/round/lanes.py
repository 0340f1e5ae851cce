"""The lanes of a round: who trains next and from which weights, and the fold of their updates."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from layers.logic.checks.returned import added, failure, finished, guarded
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Condition, Trait, refusal
from layers.logic.core.messages import EMPTY, Slot, Task, Training, Update
from layers.logic.core.round import PlannedLane
from layers.logic.core.state import ServerState, frozen
from layers.logic.core.survey import Question
from layers.logic.errors import LogicError
from layers.logic.round.exchange import StateLost
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.seeds import derive
from layers.logic.storage import StoredSlots, UpdateStore, Vector, slots_bytes


@dataclass(eq=False)
class Lane:
    """A lane during a round: the clients that wait for a task, and the updates so far.

    Attributes:
        place: place of the lane in the round.
        round: the number of the tasks of the lane (see `Task.round`).
        planned: the lane as the selector planned it.
        start: float32 (d,), the weights that the lane starts from.
        buffers: float32 (b,), the buffers that the next client starts from.
        staleness: by how many versions the model that the lane started from is older than the
            global model.
        waiting: the clients that wait for a task, in order; with several passes, each once for each
            pass that it has not begun.
        updates: the decoded updates of the accepted clients, in order.
        ended: whether no update will be added.
    """

    place: int
    round: int
    planned: PlannedLane
    start: np.ndarray
    buffers: np.ndarray
    staleness: int = 0
    waiting: deque[int] = field(init=False)
    updates: list[Update] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        self.waiting = deque(self.clients * self.passes)
        self.weights = self.start  # float32 (d,), the weights that the next client starts from
        self._delta: Vector = EMPTY
        self._stored = False  # whether its vectors wait where the store has room
        self._on_disk: list[StoredSlots] = []  # the slots of each update, once they are there

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of the lane, in order."""
        return self.planned.clients

    @property
    def passes(self) -> int:
        """How many times the lane is gone through."""
        return self.planned.passes

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

    def discard(self) -> None:
        """Drop the updates, before they are folded."""
        self._delta, self.weights, self.updates, self._on_disk = EMPTY, EMPTY, [], []

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
            group=self.planned.group,
            weight=self.planned.weight,
            staleness=self.staleness,
            start=self.start,
        )
        self._delta, self.weights, self.buffers, self.updates = EMPTY, EMPTY, EMPTY, []
        self._on_disk = []
        return contribution


class Dispatch:
    """Makes the tasks of a round, and knows which of them are outstanding.

    Args:
        state: state after the last round.
        pipeline: the server sides of the hooks.
        logic: logic of the experiment.
        in_flight: the clients whose earlier tasks continue.

    Attributes:
        lanes: the lanes in the order in which they were planned; in an asynchronous round also
            those of the earlier tasks whose updates have arrived.
        sent: the number of tasks that this round has sent to each client.
        outstanding: the sent tasks whose updates may still come, by client, in the order of
            sending; read-only.
    """

    def __init__(
        self,
        state: ServerState,
        pipeline: ServerPipeline,
        logic: Logic,
        in_flight: Collection[int] = (),
    ) -> None:
        self._state = state
        self._aggregator = logic.aggregator
        self._task_number = max(state.round, state.task_number)
        self._pipeline = pipeline
        self._seed, self._local_tensors = logic.seed, logic.local_tensors
        self._initial_known = logic.initial is not None
        self._training = logic.training_of(state.round + 1)
        self._lane_of: dict[int, Lane] = {}
        self._tasks: dict[int, Task] = {one: state.in_flight[one] for one in in_flight}
        self.lanes: list[Lane] = []
        self.sent: Counter[int] = Counter()
        self.outstanding: Mapping[int, Task] = MappingProxyType(self._tasks)

    @property
    def next_task_number(self) -> int:
        """The number of the tasks of the lanes that begin next."""
        return self._task_number + 1

    def begin(self, planned: Sequence[PlannedLane], excluded: Collection[int] = ()) -> list[Task]:
        """Begin lanes; return the task of the first client of each.

        Args:
            planned: the lanes.
            excluded: their clients that get no task, since a hook leaves them out or they did not
                answer the cohort's question.
        """
        self._task_number += 1
        groups = dict.fromkeys(lane.group for lane in planned)
        starts = {group: self._aggregator.start(self._state, group) for group in groups}
        begun = []
        for one in planned:
            lane = Lane(len(self.lanes), self._task_number, one, *starts[one.group])
            self.lanes.append(lane)
            self._lane_of |= dict.fromkeys(one.clients, lane)
            begun.append(lane)
        for client in excluded:
            lane = self._lane_of[client]
            lane.leave(client)
            lane.ended = not lane.waiting
        return [task for lane in begun for task in self.next(lane)]

    def next(self, lane: Lane) -> list[Task]:
        """Return the task of the next client of a lane, if there is one."""
        if not lane.waiting:
            return []
        client = lane.waiting.popleft()
        if lane.pass_of(client) > 1:  # this round's update of the pass before was accepted
            return [self._task(client, lane.round)]
        self.sent[client] += 1
        return [self._task(client, self._state.last_accepted.get(client, 0))]

    def retry(self, lost: StateLost) -> list[Task]:
        """Return a task without earlier memory, for a client that lost its memory in the round."""
        task = self._tasks.get(lost.client)
        if task is None or lost.round != task.round or not task.last_accepted_round:
            return []
        return [self._task(lost.client, 0)]

    def end(self, client: int) -> Lane:
        """End a client's task; return its lane."""
        lane = self.lane_of(client)
        del self._tasks[client]
        return lane

    def lane_of(self, client: int) -> Lane:
        """Return the lane of a client's last task, which may be one of an earlier round."""
        if client not in self._lane_of:
            state, task = self._state, self._state.in_flight[client]
            start = state.versions.get(task.model_version, state.weights)
            staleness = state.round - task.model_version
            planned = PlannedLane((client,), offer=task.offer)
            lane = Lane(len(self.lanes), task.round, planned, start, state.buffers, staleness)
            lane.waiting.clear()  # it has its task already
            self.lanes.append(lane)
            self._lane_of[client] = lane
        return self._lane_of[client]

    def kept(self) -> dict[str, Any]:
        """Return the tasks that may outlive the round, as the next state keeps them."""
        in_flight = {
            client: task.without_vectors() if task.has_model else task
            for client, task in self._tasks.items()
        }
        models = {**self._state.versions, self._state.round: self._state.weights}
        used = {task.model_version for task in in_flight.values()}
        task_number = self._task_number if self._task_number > self._state.round + 1 else 0
        return {
            "in_flight": in_flight,
            "versions": {one: models[one] for one in sorted(used) if one in models},
            "task_number": task_number,
        }

    def _task(self, client: int, last_accepted_round: int) -> Task:
        lane = self.lane_of(client)
        pass_number = lane.pass_of(client)
        again = () if pass_number == 1 else (pass_number,)
        task = Task(
            round=lane.round,
            client=client,
            seed=derive(self._seed, "train", lane.round, client, *again),
            training=self._training,
            weights=lane.weights,
            buffers=lane.buffers,
            last_accepted_round=last_accepted_round,
            offer=lane.planned.offer,
            model_version=self._state.round - lane.staleness,
            pass_number=pass_number,
        )
        task = self._pipeline.send(task)
        if self._local_tensors is not None and (self._initial_known or last_accepted_round):
            task = self._local_tensors.cut_task(task)
        self._tasks[client] = task
        return task


class Fold:
    """Folds each lane as soon as it and all lanes before it have ended.

    Args:
        lanes: the lanes in the order in which they were planned; further ones may be appended.
        state: state after the last round.
        logic: the logic of the experiment, whose aggregator adds contributions.
        pipeline: the server sides, which process each accepted update.
        wait: whether no lane is folded before `rest`, since a hook asks the clients first, or the
            order of the lanes is not known.
        store: where the lanes' vectors wait until they are folded; None: in memory.

    Attributes:
        shares: how much the update of a client counted in the aggregation, by client and number of
            its task; empty before `finish`, and if the aggregator does not say.

    Raises:
        LogicError: `store` is given, and the aggregator needs whole updates.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        state: ServerState,
        logic: Logic,
        pipeline: ServerPipeline,
        wait: bool = False,
        store: UpdateStore | None = None,
    ) -> None:
        self._lanes, self._pipeline, self._wait, self._store = lanes, pipeline, wait, store
        self._aggregator = aggregator = logic.aggregator
        self._layout, self._local_tensors = logic.layout, logic.local_tensors
        if store is not None:
            check_by_slices(aggregator)
        self._round = state.round + 1
        context = pipeline.aggregator_context()
        self._total: Any = guarded(aggregator.begin, state, context, round=self._round)
        self._next = 0  # place of the lane to fold next
        self._masked: list[Contribution] = []  # the lanes whose sum is not revealed yet
        self._contributions: list[tuple[tuple[int, int], ...]] = []
        self.shares: dict[tuple[int, int], float] = {}

    def keep(self, lane: Lane) -> None:
        """Let the vectors of an ended lane wait where the store has room for them.

        Raises:
            LogicError: the disk does not take them.
        """
        if self._store is not None:
            lane.store(self._store)

    def advance(self) -> None:
        """Fold the lanes that have ended, up to the first one that has not."""
        while not self._wait and self._next < len(self._lanes) and self._lanes[self._next].ended:
            self._fold(self._lanes[self._next])
            self._next += 1

    def rest(self, by_task: bool = False) -> None:
        """Fold the remaining lanes at the end of the round, except those with clients in flight.

        Args:
            by_task: whether to fold in the order of their tasks, not in that of the lanes.
        """
        rest = self._lanes[self._next :]
        for lane in sorted(rest, key=lambda one: (one.round, one.clients)) if by_task else rest:
            if lane.ended:
                self._fold(lane)
        self._next = len(self._lanes)

    def inquiry(self, state: ServerState) -> tuple[Question, Sequence[int]] | None:
        """Return the aggregator's question, and the clients to ask; None: it has none."""
        if not self._contributions or self._masked:
            return None
        return guarded(self._aggregator.inquire, self._total, state, round=self._round)

    def on_answers(self, answers: Mapping[int, Slot]) -> None:
        """Give the aggregator the answers by client."""
        on_answers = self._aggregator.on_answers
        self._total = guarded(on_answers, self._total, answers, round=self._round)

    def finish(self, state: ServerState) -> ServerState:
        """Return the state after aggregation; without contributions, return `state`, unless the
        aggregator makes a model of them, too (`counts_empty`).

        Raises:
            PartFailed: the aggregator failed, or returned no state of the right form.
        """
        if not self._contributions and not self._aggregator.counts_empty:
            return state
        if self._masked:
            mean = self._revealed(state)
            self._total = added(self._aggregator, self._total, mean, self._round)
        after = finished(self._aggregator, self._total, state, self._layout)
        if self._masked:
            return after  # how much each of them counted is not known
        given, known = after.shares.tolist(), len(self._contributions)
        if given and len(given) != known:
            what = f"returned {len(given)} shares, of {known} contributions"
            raise failure(self._aggregator.finish, what, self._round)
        for share, updates in zip(given, self._contributions, strict=False):
            self.shares |= dict.fromkeys(updates, share)
        return after

    def _fold(self, lane: Lane) -> None:
        if not lane.updates:
            return
        self.keep(lane)
        if self._pipeline.notes_accepted:
            for update in lane.accepted():
                self._pipeline.on_accepted(update)
        self._contributions.append(tuple((one.client, one.round) for one in lane.updates))
        alone = lane.clients[0] if len(lane.clients) == 1 else None
        contribution = lane.contribution(self._pipeline.training_of(alone))
        if self._pipeline.masked:
            nothing = tuple(replace(one, slots={}) for one in contribution.updates)
            self._masked.append(replace(contribution, updates=nothing))
            return
        self._total = added(self._aggregator, self._total, contribution, self._round)

    def _revealed(self, state: ServerState) -> Contribution:
        """Return the mean of all updates as one contribution."""
        delta, buffers = self._pipeline.reveal()
        if (local := self._local_tensors) is not None:
            delta = local.travelling(delta)
            buffers = local.travelling_buffers(buffers, state.buffers)
        return Contribution(
            lane=0,
            samples=sum(one.samples for one in self._masked),
            delta=delta,
            buffers=buffers,
            updates=tuple(update for one in self._masked for update in one.updates),
            training=self._pipeline.training_of(None),
            start=state.weights,
        )


def check_by_slices(aggregator: Aggregator) -> None:
    """Check that an aggregator can fold updates that are on disk.

    Raises:
        LogicError: it needs whole updates.
    """
    if Trait.BY_SLICES not in aggregator.provides:
        raise LogicError(refusal(Condition.ON_DISK, Trait.BY_SLICES, "", aggregator))
