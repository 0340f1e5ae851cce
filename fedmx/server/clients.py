"""The clients of a run, as its server holds them: simulated or remote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from layers.logic import Peers
from layers.logic.clock import Clock


@dataclass(frozen=True)
class Overhead:
    """What a round took besides its messages.

    Attributes:
        control_bytes: of handshakes, heartbeats and the like.
        file_bytes: of files that clients were sent, in both directions together.
        rejected_connections: why peers were turned away.
    """

    control_bytes: int = 0
    file_bytes: int = 0
    rejected_connections: tuple[str, ...] = ()


class Clients(Peers, Protocol):
    """What the logic layer asks of clients, and what a run and its checkpoints need besides."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

    @property
    def address(self) -> str:
        """Where clients connect; empty in a simulation."""

    @property
    def clock(self) -> Clock:
        """The clock by which rounds are timed."""

    def tree(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the clients, as named arrays and numbers."""

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Take back what `tree` returned."""

    def overhead(self) -> Overhead:
        """Return what was taken besides messages since the last call."""

    def finish(self, reason: str) -> None:
        """End the run for the clients: they get no more tasks."""
