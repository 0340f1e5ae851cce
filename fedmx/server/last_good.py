"""The state from which a run goes on after a round that ended with a broken model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fedmx.log import Log
from fedmx.run import CheckpointError
from fedmx.server.round import Round
from fedmx.server.step_back import MOST_IN_A_ROW, MOST_ROUNDS, StepBack, StepsBack
from layers.logic import BrokenModel, Logic, ServerState
from layers.logic.core.state import EXCLUDED

log = Log("fedmx.server")


class Checkpoints(Protocol):
    """The checkpoints that a run has kept."""

    @property
    def checkpoint_rounds(self) -> Sequence[int]:
        """The rounds that have a checkpoint."""

    def earlier(self, round: int) -> Mapping[str, Any] | None:
        """Return the newest checkpoint that was recorded before a round; None: there is none."""


class Recorder(Checkpoints, Protocol):
    """Records every round before the next one begins."""

    def record(self, round: Round, checkpoint: Mapping[str, Any]) -> None:
        """Record a round and the checkpoint after it; an exception from here ends the run."""

    def step_back(self, round: int, checkpoint: Mapping[str, Any]) -> None:
        """Forget what came after `round`; the run goes on from this checkpoint of it."""


def last_good(
    error: BrokenModel,
    state: ServerState,
    steps: StepsBack,
    logic: Logic,
    kept: Checkpoints | None,
    first: Callable[[], ServerState],
) -> ServerState:
    """Return the state to go on from, without the client that is suspected first.

    Args:
        error: how the round after `state` ended.
        state: the present state.
        steps: the steps back so far; the new one is added.
        logic: logic of the experiment.
        kept: the checkpoints; None: there are none.
        first: makes the state before the first round.

    Raises:
        BrokenModel: the run has stepped back too often, or no earlier state exists.
    """
    report = error.report
    if steps.in_a_row(report.round) >= MOST_IN_A_ROW:
        raise _ended(error, f"stepping back {MOST_IN_A_ROW} times did not help")
    if not error.at_start:
        steps.note(report)
    good = _before_the_worst(error, state, steps, kept, first)
    suspects = steps.suspects(good.round)
    excluded: dict[Any, str] = dict(state.memory.get(EXCLUDED, {}))
    new = tuple(one for one in suspects[:1] if one not in excluded)
    left = (logic.clients or report.selected) - len(excluded) - len(new)
    if left < max(logic.min_updates, 1):
        new = ()
    excluded.update(dict.fromkeys(new, f"suspected in round {report.round}"))
    step = StepBack(report.round, good.round, str(error), suspects, new)
    steps.forget_after(good.round)
    steps.steps.append(step)
    log.warning("round_stepped_back", "round {round}: {reason}", round=step.round, reason=step)
    return replace(good, memory={**good.memory, EXCLUDED: excluded}) if excluded else good


def _before_the_worst(
    error: BrokenModel,
    state: ServerState,
    steps: StepsBack,
    kept: Checkpoints | None,
    first: Callable[[], ServerState],
) -> ServerState:
    """Return the newest state from before the round with the largest of all known updates.

    A model that clients can just train on may be as bad as the one that they cannot.

    Raises:
        BrokenModel: the present one is the first, or nothing has kept the earlier ones.
    """
    failed = error.report.round
    from_start = state.round <= MOST_ROUNDS  # after more, too much would be lost
    rounds = () if kept is None else kept.checkpoint_rounds
    worst = steps.worst_round(0 if from_start else min(rounds, default=state.round))
    if not error.at_start and worst == failed and not steps.retried(failed):
        return state
    before = state.round if worst is None else min(worst, state.round)
    checkpoint = None if kept is None else kept.earlier(before)
    if checkpoint is not None:
        return ServerState.of_tree(checkpoint["server"])
    if not state.round or not from_start:
        raise _ended(error, "no earlier model is kept to go on from")
    try:
        return first()
    except CheckpointError as lost:
        raise _ended(error, str(lost)) from None


def _ended(error: BrokenModel, why: str) -> BrokenModel:
    settings = "lower the learning rate, use an aggregator that tolerates bad updates"
    if error.report.round == 1:  # no checkpoint is earlier, and the run would end here again
        advice = f"change the setting and run the experiment again: {settings}"
    else:
        advice = f"{settings}, or keep more checkpoints"
    return BrokenModel(
        f"{error}; {why}; {advice}",
        error.report,
        error.at_start,
    )
