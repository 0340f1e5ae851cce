"""The errors of executors: an exception from a worker, and workers that cannot work."""

from __future__ import annotations

from fedmx.errors import FedmxError


class WorkerTraceback(Exception):
    """The cause of an error that was raised in a worker; its text is the worker's traceback.

    Attributes:
        place: FILE:LINE of the user's own code where it was raised; empty: not in user code.
    """

    def __init__(self, traceback: str, place: str) -> None:
        super().__init__(f"in a worker:\n{traceback}")
        self.place = place


class ExecutorFailed(FedmxError):
    """The workers cannot do any job; the message says why."""
