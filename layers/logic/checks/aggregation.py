"""What an aggregator returns, checked at once: the value of its fold, and the next state."""

from __future__ import annotations

from typing import Any

from layers.logic.checks.returned import failure, guarded, wrong_form
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.messages import Layout
from layers.logic.core.state import ServerState


def added(aggregator: Aggregator, total: Any, contribution: Contribution, round: int) -> Any:
    """Return the value of the fold with one more contribution.

    Raises:
        PartFailed: `add` failed, or it returned None although there was a value before.
    """
    lane = contribution.updates
    client = lane[0].client if len(lane) == 1 else None
    after = guarded(aggregator.add, total, contribution, round=round, client=client)
    if after is None and total is not None:
        what = "returned None; it must return the value of the fold, as return total"
        raise failure(aggregator.add, what, round, client)
    return after


def finished(aggregator: Aggregator, total: Any, state: ServerState, layout: Layout) -> ServerState:
    """Return the state after aggregation.

    Raises:
        PartFailed: `finish` failed, or it returned no state, or vectors of a wrong type or length.
    """
    round = state.round + 1
    after = guarded(aggregator.finish, total, state, round=round)
    problem = wrong_form(state, after, layout)
    if problem is not None:
        raise failure(aggregator.finish, f"returned {problem}", round)
    return after
