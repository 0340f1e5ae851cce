"""FedAIM read in another way: the global model is that of one of its two servers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from layers.logic.algorithms.fedaim import FedAim
from layers.logic.core.aggregator import AGGREGATE

if TYPE_CHECKING:
    import numpy as np

    from fedmx import ServerState

CENTRAL = "central"
"""w^C in the aggregator's memory, because the state has another model as its weights."""


@dataclass(frozen=True)
class OneServer(FedAim):
    """FedAIM, evaluated with w^NEBS or w^EBS after each round instead of w^C.

    It trains and exchanges exactly as `fedaim`. After an exchange all three models are equal.

    Attributes:
        server: ``"nebs"`` or ``"ebs"``.
    """

    name = "fedaim-one-server"

    server: Literal["nebs", "ebs"] = "nebs"

    def start(self, state: ServerState, group: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the model of the group's server."""
        return super().start(_with_central(state), group)

    def finish(self, total: Any, state: ServerState) -> ServerState:
        """Return the state with the server's model, which keeps w^C."""
        after = super().finish(total, _with_central(state))
        weights, buffers = super().start(after, self.server)
        kept = {CENTRAL: after.weights, f"{CENTRAL}_buffers": after.buffers}
        memory = {**after.memory, AGGREGATE: {**after.memory[AGGREGATE], **kept}}
        return replace(after, weights=weights, buffers=buffers, memory=memory)


def _with_central(state: ServerState) -> ServerState:
    """Return the state with w^C as its weights."""
    kept = state.memory.get(AGGREGATE, {})
    if CENTRAL not in kept:
        return state
    return replace(state, weights=kept[CENTRAL], buffers=kept[f"{CENTRAL}_buffers"])
