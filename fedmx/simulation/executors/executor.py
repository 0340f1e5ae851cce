"""What a simulation asks of whoever trains for its clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from layers.logic import Answer, ClientLedger, Question, Task, Traffic, Update


@dataclass(frozen=True, eq=False)
class TrainResult:
    """What a client made of a task.

    Attributes:
        update: as it arrives after its way over the wire.
        up_bytes: of the update on the wire.
        ledger: what the client's hooks keep.
    """

    update: Update
    up_bytes: int
    ledger: ClientLedger


class Work(Protocol):
    """One task that an executor has taken."""

    @property
    def down_bytes(self) -> int:
        """Bytes of the task on the wire."""

    def result(self) -> TrainResult:
        """Return what the client made of the task, when it is done; called once.

        Raises:
            ClientFailed: the client's code failed on it.
        """

    def cancel(self) -> None:
        """Let go of the task: its update is not wanted any more."""


class Executor(Protocol):
    """Does the work of simulated clients; any of its workers can work for any client."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Take a task, in the order in which results are wanted; work on it may begin at once."""

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[tuple[Answer, Traffic]]:
        """Return the answers of clients in their order, and the bytes that each took.

        Raises:
            ClientFailed: a client's code failed on it.
        """
