"""The carrier of a server: it carries rounds to clients, and can be closed, saved and restored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from layers.logic import Carrier, TooFewUpdates
from layers.logic.round.patience import Patience


class RunCarrier(Carrier, Protocol):
    """A `Carrier` for the rounds of a whole run."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exc_info: object) -> None: ...

    @property
    def address(self) -> str:
        """Address that clients connect to; empty in a simulation."""

    @property
    def virtual(self) -> bool:
        """Whether the time of its events is virtual."""

    @property
    def opened_s(self) -> float | None:
        """Virtual seconds of the run at which the last round was opened; None: real time."""

    @property
    def patience(self) -> Patience | None:
        """How long a connected client may take to answer in the next round; None: any time."""

    def tree(self) -> dict[str, Any]:
        """Return the clients' part of a checkpoint, as named arrays and numbers."""

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Continue from the result of `tree`."""

    def keep_assets(self, folder: Path) -> None:
        """Keep the files of the assets in `folder`, if clients receive files."""

    def forget(self, reason: str) -> None:
        """Drop all tasks in flight, so that no update comes that was asked for before now."""

    def again(self, error: TooFewUpdates) -> bool:
        """Return whether a round that brought too few updates is run again, after a pause."""

    def finish(self, reason: str) -> None:
        """Tell the clients that the run is over, and why."""
