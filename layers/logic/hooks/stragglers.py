"""Stragglers: clients that have time for a part of their local work (Li et al. 2020, section 5.2).

Slow devices, whose times follow from their speed, belong in `clock`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from layers.logic.core.declaration import Trait
from layers.logic.core.hook import Hook, ServerContext, ServerSide
from layers.logic.core.messages import Task, Training
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.settings import Share


@dataclass(frozen=True)
class Stragglers(Hook):
    """A share of each cohort trains only x epochs, with x drawn uniformly from 1 to E.

    E is the number of epochs of the other clients; if training is set in steps, x and E are steps.
    The draws depend on the seed, the round and the cohort alone. So with every algorithm and beside
    all other hooks, the same clients are stragglers with the same x, and the stragglers of a
    smaller share are among those of a larger one. Nothing more is sent, and neither side keeps
    anything.

    In the paper's experiments FedProx aggregates what stragglers have done, and FedAvg drops them.

    Attributes:
        share: the share of the cohort's clients that are stragglers; half a client counts as one.
        drop: whether stragglers are dropped: they get no task, cost neither time nor bytes, and the
            report lists them as lost. If E is 1, stragglers that are not dropped train like all
            others.
    """

    name = "stragglers"

    share: Share = 0.5
    drop: bool = False

    @property
    def provides(self) -> frozenset[Trait]:
        """Fewer steps of some clients, unless these are dropped."""
        return frozenset() if self.drop else frozenset({Trait.OTHER_TASKS})

    def __post_init__(self) -> None:
        if self.drop and self.share == 1:
            raise LogicError(
                "stragglers with share 1 and drop would drop every client; lower the share"
            )

    class Server(ServerSide["Stragglers"]):
        def __init__(self, hook: Stragglers) -> None:
            super().__init__(hook)
            self._work: dict[int, int] = {}  # x, by straggler

        def leave_out(self, clients: Sequence[int], context: ServerContext) -> Mapping[int, str]:
            unit, whole = _work_of(context.training)
            cohort = sorted(clients)
            rng = context.shared_rng("stragglers")
            order = rng.permutation(len(cohort))
            work = rng.integers(1, whole, size=len(cohort), endpoint=True)
            number = int(self.hook.share * len(cohort) + 0.5)
            self._work = {cohort[place]: int(work[place]) for place in order[:number]}
            if not self.hook.drop:
                return {}
            return {
                client: f"a straggler: it has time for {part} of {whole} {unit}"
                for client, part in self._work.items()
            }

        def send(self, task: Task, context: ServerContext) -> Task:
            part = self._work.get(task.client)
            if part is None:
                return task
            training = task.training
            if training.steps is None:
                return replace(task, training=replace(training, epochs=part))
            return replace(task, training=replace(training, steps=part))

        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
            context.record(stragglers=len(self._work))
            return state


def _work_of(training: Training) -> tuple[str, int]:
    """Return the unit of local work, and how many of them there are."""
    if training.steps is None:
        return "epochs", training.epochs
    return "steps", training.steps
