"""What a simulation asks of whoever trains for its clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from layers.logic import Answer, ClientLedger, Question, Task, Traffic, Update


@dataclass(frozen=True, eq=False)
class TrainResult:
    """What became of a task.

    Attributes:
        update: as it arrives after its way over the wire.
        up_bytes: of the update on the wire.
        ledger: what the client's hooks keep.
    """

    update: Update
    up_bytes: int
    ledger: ClientLedger


class Executor(Protocol):
    """They take tasks in the order in which they are wanted, and any of them can take any."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

    def begin(self, task: Task, ledger: ClientLedger) -> int:
        """Take a task, which may be worked on at once; return its bytes on the wire."""

    def made(self, client: int) -> TrainResult:
        """Return what became of a client's task, when it is done.

        Raises:
            ClientFailed: the client's code failed on it.
        """

    def forget(self, client: int) -> None:
        """Let go of a task whose update is not wanted any more."""

    def ask(self, question: Question, clients: Sequence[int]) -> Sequence[tuple[Answer, Traffic]]:
        """Return the answers of clients in their order, and the bytes that each took.

        Raises:
            ClientFailed: a client's code failed on it.
        """
