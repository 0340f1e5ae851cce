"""The interface of a simulation to its executor, which trains for the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from layers.logic import Answer, ClientLedger, Question, Task, Traffic, Update


@dataclass(frozen=True, eq=False)
class TrainResult:
    """The result of a client's task.

    Attributes:
        update: the update, as the server receives it.
        up_bytes: bytes of the update on the wire.
        ledger: the memory of the client's hooks after the task.
    """

    update: Update
    up_bytes: int
    ledger: ClientLedger


class Work(Protocol):
    """One task that was submitted to an executor."""

    @property
    def down_bytes(self) -> int:
        """Bytes of the task on the wire."""

    def result(self) -> TrainResult:
        """Wait for the result and return it; called once.

        Raises:
            ClientFailed: the client's code failed.
        """

    def cancel(self) -> None:
        """Cancel the task."""


class Executor(Protocol):
    """Does the work of simulated clients; each of its workers can work for any client."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

    def submit(self, task: Task, ledger: ClientLedger) -> Work:
        """Submit a task, in the order in which results are needed; its work may begin at once."""

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[tuple[Answer, Traffic]]:
        """Return the answers of clients in their order, each with its bytes on the wire.

        Raises:
            ClientFailed: a client's code failed.
        """
