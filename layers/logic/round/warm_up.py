"""What the server sides of hooks do before round 1: they may train the initial model."""

from __future__ import annotations

from dataclasses import replace

from layers.logic.core.state import ServerState, frozen
from layers.logic.round.logic import Logic
from layers.logic.round.validation import check_model


def warmed_up(state: ServerState, logic: Logic) -> ServerState:
    """Return the state before round 1 after the hooks' `warm_up`; return any later state as it is.

    Raises:
        LogicError: a hook cannot train, or the model that it made is not finite.
    """
    if state.round:
        return state
    after = logic.server_pipeline(state, logic.clients or 0).warm_up()
    if after is state:
        return state
    check_model(after, logic)
    return replace(after, weights=frozen(after.weights), buffers=frozen(after.buffers))
