"""A watcher sees a task and an update at each station of their way, and calls the hooks' halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

from layers.logic.core.messages import Task, Update
from layers.logic.core.report import ClientReport

End: TypeAlias = Literal["server", "client"]
Station: TypeAlias = Literal["start", "task", "training", "message", "decoded"]
"""Where a task or an update is seen between the hooks.

The start is the task with the model, before the server's first hook; the task is as the client
received it; the update of the training is before the client's first hook, and the message is the
update as it is sent; the decoded update is what the server's last hook returned.
"""


class Watcher(Protocol):
    """Sees the stations of a round; it changes nothing."""

    def call(self, end: End, key: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of a hook's half, and return what it returned.

        Args:
            end: where the half is.
            key: the hook's key, its place and class name.
            method: the method, bound to the half.
            *arguments: its arguments; the last one is the context.
        """

    def saw(self, end: End, station: Station, message: Task | Update) -> None:
        """See a task or an update at a station."""

    def ended(self, report: ClientReport) -> None:
        """See the fate of a client's task or update, when it is known."""
