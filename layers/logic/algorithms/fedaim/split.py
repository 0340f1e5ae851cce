"""Which clients are extremely biased: FedAIM's selector keeps it, its aggregator reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from layers.logic.algorithms.mediators.schedule import Lines, kept_lines, lines_of
from layers.logic.core.selector import SELECT
from layers.logic.core.state import Memory, ServerState

NEBS = "nebs"
"""The group of the lanes of clients that are not extremely biased, and the server's name."""

EBS = "ebs"
"""The group of the mediators' lanes, and the server's name."""

ALONE = " alone"
"""The end of a group's name in a round in which no client of the other server is there."""


@dataclass(frozen=True, eq=False)
class Split:
    """The clients that reported their labels, in two parts.

    Attributes:
        clients: all of them, ascending.
        emd: float64 (n,), the bias of each.
        mediators: the extremely biased ones, mediator by mediator.
    """

    clients: tuple[int, ...] = ()
    emd: np.ndarray = field(default_factory=lambda: np.zeros(0))
    mediators: Lines = ()

    @cached_property
    def bias(self) -> Mapping[int, float]:
        """The bias by client."""
        return dict(zip(self.clients, self.emd.tolist(), strict=True))

    @cached_property
    def unbiased(self) -> tuple[int, ...]:
        """The clients that are not extremely biased, ascending."""
        biased = {client for line in self.mediators for client in line}
        return tuple(client for client in self.clients if client not in biased)

    def memory(self) -> Memory:
        """Return the split as named arrays."""
        clients = np.array(self.clients, np.int64)
        return {"clients": clients, "emd": self.emd, **kept_lines(self.mediators)}

    @classmethod
    def of(cls, memory: Mapping[str, Any]) -> Split:
        """Return the split that was kept, or an empty one."""
        if "emd" not in memory:
            return cls()
        return cls(tuple(memory["clients"].tolist()), memory["emd"], lines_of(memory))

    @classmethod
    def of_state(cls, state: ServerState) -> Split:
        """Return the split that the selector kept in this state, or an empty one."""
        return cls.of(state.memory.get(SELECT, {}))

    def kept_in(self, state: ServerState) -> ServerState:
        """Return the state in which the selector keeps this split."""
        return replace(state, memory={**state.memory, SELECT: self.memory()})
