"""The state of each end from one round to the next; a checkpoint consists of these values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from layers.logic.core.messages import EMPTY, Task

EXCLUDED = "excluded"
"""The key of the clients that are not asked any more, each with the reason, in a state's memory."""

Memory: TypeAlias = "dict[str, Any]"
"""Named arrays, numbers, text, and mappings of them; a hook's half may keep these."""


@dataclass(frozen=True, eq=False)
class ServerState:
    """The whole state of the server after `round` rounds.

    Attributes:
        round: number of concluded rounds.
        weights: float32 (d,), the global model.
        buffers: float32 (b,), its non-trainable state.
        models: the models of groups that have one of their own, by group, each as weights (d,) and
            buffers (b,).
        groups: by client, the group of its last accepted update, while groups have models.
        memory: the memory of selector, aggregator, surveys and hooks, by their keys.
        last_accepted: by client, the last round in which its update was accepted.
        in_flight: tasks of earlier rounds, without vectors, whose updates may still be accepted.
        versions: by version, float32 (d,), the models that tasks in flight started from.
        base: by client, the version that its last accepted update started from, where that is not
            the round before `last_accepted`.
        task_number: the number of the last tasks that were sent (see `Task.round`), if rounds have
            sent tasks more than once; 0: that number is `round`.
        change: float32 (d,), the vector that was added to the weights at the end of a round, before
            rounding; empty if it is not known, and between rounds.
        shares: float64 (m,), how much each of the m contributions of a round counted in its
            aggregation, in the order of the fold, with sum 1; 0 if it was left out. Empty if it is
            not known, and between rounds.
    """

    round: int
    weights: np.ndarray
    buffers: np.ndarray
    memory: Mapping[str, Memory] = field(default_factory=dict)
    models: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    groups: Mapping[int, str] = field(default_factory=dict)
    last_accepted: Mapping[int, int] = field(default_factory=dict)
    in_flight: Mapping[int, Task] = field(default_factory=dict)
    versions: Mapping[int, np.ndarray] = field(default_factory=dict)
    base: Mapping[int, int] = field(default_factory=dict)
    task_number: int = 0
    change: np.ndarray = field(default_factory=lambda: EMPTY)
    shares: np.ndarray = field(default_factory=lambda: EMPTY)

    def model_of(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the model of a client's group, as weights (d,) and buffers (b,); the global model
        if the group has none."""
        return self.models.get(self.groups.get(client, ""), (self.weights, self.buffers))

    def base_of(self, client: int) -> int | None:
        """Return the version that a client's last accepted update started from; None: unknown."""
        last = self.last_accepted.get(client)
        return None if last is None else self.base.get(client, last - 1)

    def excluding(self, excluded: Mapping[Any, str]) -> ServerState:
        """Return the state in which exactly these clients are excluded, with the reasons.

        A client that is not excluded any more begins with an empty memory, as a new one.
        """
        before: dict[Any, str] = dict(self.memory.get(EXCLUDED, {}))
        if before == dict(excluded):
            return self
        memory = {**self.memory, EXCLUDED: dict(excluded)}
        if not excluded:
            del memory[EXCLUDED]
        again = before.keys() - excluded.keys()
        last = {one: round for one, round in self.last_accepted.items() if one not in again}
        return replace(self, memory=memory, last_accepted=last)

    def tree(self) -> dict[str, Any]:
        """Return the state as named arrays and numbers."""
        some = {
            "versions": dict(self.versions),
            "base": dict(self.base),
            "moment": self.task_number,
            "groups": dict(self.groups),
            "models": {
                group: {"weights": weights, "buffers": buffers}
                for group, (weights, buffers) in self.models.items()
            },
        }
        return {
            **{name: kept for name, kept in some.items() if kept},
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
            versions={one: frozen(kept) for one, kept in tree.get("versions", {}).items()},
            base=tree.get("base", {}),
            task_number=tree.get("moment", 0),
            groups=tree.get("groups", {}),
            models={
                group: (frozen(kept["weights"]), frozen(kept["buffers"]))
                for group, kept in tree.get("models", {}).items()
            },
        )


@dataclass(frozen=True, eq=False, slots=True)  # a simulation keeps one or two for each client
class ClientState:
    """The memory of a client's hooks after its part in `round`; round 0: empty.

    In a lane of several passes it is the memory after the client's part in one pass.
    """

    round: int = 0
    memory: Mapping[str, Memory] = field(default_factory=dict)
    pass_number: int = 1

    def tree(self) -> dict[str, Any]:
        """Return the state as named arrays and numbers."""
        later = {"pass": self.pass_number} if self.pass_number > 1 else {}
        return {"round": self.round, "memory": dict(self.memory), **later}

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> ClientState:
        """Return the state that `tree` was made from."""
        return cls(tree["round"], tree["memory"], tree.get("pass", 1))


MOST_KEPT = 2  # rounds whose memory a client has: before and after its last update


@dataclass(frozen=True, eq=False, slots=True)
class RoundMemory:
    """The memory that a client's trainer and hooks share within one round.

    A round has steps in a fixed order: answers before the task, the task, answers after it. A step
    that is repeated starts from the same memory as the first time. An earlier step than the last
    one means that the server repeats the round, so the memory is empty again.

    Attributes:
        round: number of the round, as questions and tasks have it; 0: there is no memory.
        step: the last step, which is greater than all earlier ones of the round.
        before: the memory before that step.
        after: the memory after that step.
    """

    round: int = 0
    step: tuple[int, int] = (0, 0)
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)

    def at(self, round: int, step: tuple[int, int]) -> Memory:
        """Return a copy of the memory that a step starts from, with read-only arrays."""
        if round != self.round or step < self.step:
            return {}
        return reopened(self.before if step == self.step else self.after)

    def passed(self, round: int, step: tuple[int, int], after: Memory) -> RoundMemory:
        """Return the memory after a step, with copies of the arrays in `after`."""
        before = self.at(round, step)
        if not before and not after:
            return NO_ROUND
        return RoundMemory(round, step, before, _copied(after))

    def tree(self) -> dict[str, Any]:
        """Return the memory as named arrays and numbers."""
        before, after = dict(self.before), dict(self.after)
        return {"round": self.round, "step": self.step, "before": before, "after": after}

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> RoundMemory:
        """Return the memory that `tree` was made from."""
        return cls(tree["round"], tuple(tree["step"]), tree["before"], tree["after"])


NO_ROUND = RoundMemory()  # one for all clients whose parts share nothing


@dataclass(frozen=True, eq=False, slots=True)
class ClientLedger:
    """A client's memory before and after its last update, which may or may not be accepted.

    Each task says which update of this client was accepted last. So an update that was lost,
    rejected, late or declined leaves no trace in the client's memory, and a round that is repeated
    after a server's restart starts from the same memory as the first time.

    Attributes:
        settled: the memory before the round of the last update.
        pending: the memory after the last update, valid if it is accepted; None: there is none.
        passed: the memory after the pass before that of the last update; None: it was of the first
            pass.
        within: the memory within the last round, whether the update is accepted or not.
    """

    settled: ClientState = field(default_factory=ClientState)
    pending: ClientState | None = None
    passed: ClientState | None = None
    within: RoundMemory = NO_ROUND

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds whose memory the ledger has; `settle` finds no other."""
        states = (self.settled, self.pending)
        return tuple(state.round for state in states if state is not None and state.round)

    @property
    def start(self) -> ClientState:
        """The memory that the next task starts from, once the ledger is settled."""
        return self.settled if self.passed is None else self.passed

    def settle(self, last_accepted_round: int, pass_number: int = 1) -> ClientLedger:
        """Return the ledger with the memory that a task needs as its `start`.

        That is the memory after the client's last accepted round, or, in a later pass, after its
        part in the pass before. A client that lost this memory starts with an empty one.

        Args:
            last_accepted_round: as the task has it.
            pass_number: of the task; the memory before its round is kept beside that of its passes.
        """
        for state in (self.pending, self.passed) if pass_number > 1 else ():
            if state is not None and (state.round, state.pass_number) == (
                last_accepted_round,
                pass_number - 1,
            ):
                return replace(self, pending=None, passed=state)
        for state in (self.pending, self.settled) if pass_number == 1 else ():
            if state is not None and state.round == last_accepted_round:
                return ClientLedger(state, within=self.within)
        return ClientLedger(ClientState(last_accepted_round), within=self.within)

    def accepted(self, client: int, state: ServerState) -> ClientState:
        """Return the memory after the last update of this client that the server accepted."""
        return self.settle(state.last_accepted.get(client, 0)).settled

    def trained(self, after: ClientState, within: RoundMemory) -> ClientLedger:
        """Return the settled ledger with the memory after an update, which may be accepted."""
        return replace(self, pending=after, within=within)

    def tree(self) -> dict[str, Any]:
        """Return the ledger as named arrays and numbers."""
        pending = None if self.pending is None else self.pending.tree()
        passed = {} if self.passed is None else {"passed": self.passed.tree()}
        within = {"within": self.within.tree()} if self.within.round else {}
        return {"settled": self.settled.tree(), "pending": pending, **passed, **within}

    @classmethod
    def of_tree(cls, tree: Mapping[str, Any]) -> ClientLedger:
        """Return the ledger that `tree` was made from."""
        pending, passed, within = tree["pending"], tree.get("passed"), tree.get("within")
        return cls(
            ClientState.of_tree(tree["settled"]),
            None if pending is None else ClientState.of_tree(pending),
            None if passed is None else ClientState.of_tree(passed),
            NO_ROUND if within is None else RoundMemory.of_tree(within),
        )


def reopened(memory: Mapping[str, Any]) -> Memory:
    """Return a copy of `memory` that can be changed, with the same arrays.

    The arrays are read-only in the copy, since a round may be repeated from the memory before it.
    """
    return {key: _reopened(value) for key, value in memory.items()}


def _reopened(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return frozen(value.view())
    if isinstance(value, Mapping):
        return reopened(value)
    return value


def _copied(value: Any) -> Any:
    """Return a memory whose arrays are copies: a part may go on changing its own."""
    if isinstance(value, np.ndarray):
        return frozen(value.copy())
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return value


def frozen(array: np.ndarray) -> np.ndarray:
    """Return `array`, made read-only, so that a shared value does not change."""
    array.setflags(write=False)
    return array
