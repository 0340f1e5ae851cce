"""The interface of a run's clients to its server, simulated or remote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from layers.logic import Peers, ServerState
from layers.logic.clock import Clock


@dataclass(frozen=True)
class Overhead:
    """The cost of a round besides its messages.

    Attributes:
        control_bytes: bytes of handshakes, heartbeats and other control frames.
        file_bytes: bytes of the files sent to clients, in both directions together.
        rejected_connections: why peers were rejected.
    """

    control_bytes: int = 0
    file_bytes: int = 0
    rejected_connections: tuple[str, ...] = ()


class Clients(Peers, Protocol):
    """Peers for the logic layer, which can also be closed, saved and restored."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

    @property
    def address(self) -> str:
        """Address that clients connect to; empty in a simulation."""

    @property
    def clock(self) -> Clock:
        """The clock by which rounds are timed."""

    def tree(self) -> dict[str, Any]:
        """Return the clients' part of a checkpoint, as named arrays and numbers."""

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Go on from what `tree` returned."""

    def overhead(self) -> Overhead:
        """Return the cost besides messages since the last call."""

    def finish(self, reason: str) -> None:
        """Tell the clients that the run is over, and why."""


@runtime_checkable
class FollowsCourse(Protocol):
    """Clients of a recorded run, whose record has what was decided between its rounds, too."""

    def starts_from(self, state: ServerState) -> ServerState:
        """Return the state with which the recorded round after `state` began; it comes next."""


@runtime_checkable
class GoesBack(Protocol):
    """Clients that may still work on tasks of rounds that the server forgets."""

    def go_back(self, reason: str) -> None:
        """Make sure that no update comes that was asked for before now."""


@runtime_checkable
class SendsFiles(Protocol):
    """Clients that receive the assets as files."""

    def keep_assets(self, folder: Path) -> None:
        """Keep the files of the assets in `folder`."""
