"""An exception that was raised in a worker, as this process knows it."""

from __future__ import annotations

from fedmx.errors import FedmxError


class WorkerTraceback(Exception):
    """The cause of an error whose code ran in another process; its text is that traceback.

    Attributes:
        place: FILE:LINE of the user's own code where it was raised; empty if there is none.
    """

    def __init__(self, traceback: str, place: str) -> None:
        super().__init__(f"in a worker:\n{traceback}")
        self.place = place


class ExecutorFailed(FedmxError):
    """The workers cannot work, whatever they are given; the text says why."""
