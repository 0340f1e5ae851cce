"""What each end remembers from one round to the next; a checkpoint is these values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from layers.logic.core.messages import EMPTY, Task

Memory: TypeAlias = "dict[str, Any]"
"""Named arrays, numbers, text, and mappings of them; what a hook's half may keep."""


@dataclass(frozen=True, eq=False)
class ServerState:
    """Everything that the server knows after `round` rounds.

    Attributes:
        round: rounds that were concluded.
        weights: float32 (d,), the global model.
        buffers: float32 (b,), its non-trainable state.
        memory: what selector, aggregator, surveys and hooks keep, by their keys.
        last_accepted: for each client the last round in which its update was accepted.
        in_flight: tasks of earlier rounds, without vectors, whose updates may still be accepted.
        change: float32 (d,), what was added to the weights at the end of a round; empty where that
            is not known, and between rounds. The difference of the weights is a rounded one.
    """

    round: int
    weights: np.ndarray
    buffers: np.ndarray
    memory: Mapping[str, Memory] = field(default_factory=dict)
    last_accepted: Mapping[int, int] = field(default_factory=dict)
    in_flight: Mapping[int, Task] = field(default_factory=dict)
    change: np.ndarray = field(default_factory=lambda: EMPTY)

    def tree(self) -> dict[str, Any]:
        """Return the state as named arrays and numbers."""
        return {
            "round": self.round,
            "weights": self.weights,
            "buffers": self.buffers,
            "memory": dict(self.memory),
            "last_accepted": dict(self.last_accepted),
            "in_flight": {client: task.header() for client, task in self.in_flight.items()},
        }

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> ServerState:
        """Return the state that `tree` was made from."""
        return cls(
            round=tree["round"],
            weights=frozen(tree["weights"]),
            buffers=frozen(tree["buffers"]),
            memory=tree["memory"],
            last_accepted=tree["last_accepted"],
            in_flight={one: Task.of_header(head) for one, head in tree["in_flight"].items()},
        )


@dataclass(frozen=True, eq=False, slots=True)  # a simulation keeps one or two for each client
class ClientState:
    """What a client's hooks keep after the client's part in `round`; round 0: nothing yet."""

    round: int = 0
    memory: Mapping[str, Memory] = field(default_factory=dict)

    def tree(self) -> dict[str, Any]:
        """Return the state as named arrays and numbers."""
        return {"round": self.round, "memory": dict(self.memory)}

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> ClientState:
        """Return the state that `tree` was made from."""
        return cls(round=tree["round"], memory=tree["memory"])


@dataclass(frozen=True, eq=False, slots=True)
class ClientLedger:
    """A client's memory before and after the update of which it does not know whether it counted.

    The server says with each task which update of this client counted last. So an update that was
    lost, refused, late or declined leaves no trace in the client's memory, and a round that is run
    again after a server's restart starts from the memory that it started from the first time.
    """

    settled: ClientState = field(default_factory=ClientState)
    pending: ClientState | None = None

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds after which the memory is here; `settle` finds no other."""
        states = (self.settled, self.pending)
        return tuple(state.round for state in states if state is not None and state.round)

    def settle(self, last_accepted_round: int) -> ClientLedger:
        """Return the ledger once it is known which round of this client was accepted last.

        A client that lost its memory starts with an empty one.
        """
        for state in (self.pending, self.settled):
            if state is not None and state.round == last_accepted_round:
                return ClientLedger(state)
        return ClientLedger(ClientState(last_accepted_round))

    def tree(self) -> dict[str, Any]:
        """Return the ledger as named arrays and numbers."""
        pending = None if self.pending is None else self.pending.tree()
        return {"settled": self.settled.tree(), "pending": pending}

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> ClientLedger:
        """Return the ledger that `tree` was made from."""
        pending = tree["pending"]
        return cls(
            ClientState.of_tree(tree["settled"]),
            None if pending is None else ClientState.of_tree(pending),
        )


def reopened(memory: Mapping[str, Any]) -> Memory:
    """Return a copy of `memory` that can be added to, without copying its arrays.

    They are read-only in the copy: a round may have to be run again from the memory before it.
    """
    return {key: _reopened(value) for key, value in memory.items()}


def _reopened(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return frozen(value.view())
    if isinstance(value, Mapping):
        return reopened(value)
    return value


def frozen(array: np.ndarray) -> np.ndarray:
    """Return `array`, made read-only: a value that was handed on does not change."""
    array.setflags(write=False)
    return array
