"""What a pool asks of whoever runs its workers: processes here, or actors on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Part: TypeAlias = "bytes | Any"
"""Bytes that travel with a job, or what `Backend.share` returned, in their place."""


@dataclass(frozen=True)
class WorkerDied:
    """A worker is gone, and another one has taken its place.

    Attributes:
        who: names it, e.g. its process id.
        how: what is known of its end.
    """

    who: str
    how: str


class Backend(Protocol):
    """Executor by number, each of which does one job at a time."""

    @property
    def size(self) -> int:
        """How many workers there are; they are 0 to `size` - 1."""

    def open(self, build: bytes) -> None:
        """Let every worker, and each that takes a dead one's place, make an experiment's parts."""

    def ready(self, worker: int) -> bool:
        """Return whether a worker could take a job now, if it had none."""

    def share(self, data: memoryview) -> Any:
        """Put bytes where every worker can read them; return what stands for them."""

    def holds(self, shared: Any, data: memoryview) -> bool:
        """Return whether what was shared are these very bytes."""

    def release(self, shared: Any) -> None:
        """Let go of what was shared."""

    def submit(self, worker: int, parts: Sequence[Part]) -> None:
        """Give a worker that is free a job; a worker that cannot take it has `WorkerDied`."""

    def wait(self) -> tuple[int, bytes | WorkerDied | None]:
        """Wait until a worker has done its job, died or become ready (None); return who.

        Raises:
            ExecutorFailed: workers die as soon as they start.
        """

    def close(self) -> None:
        """End all workers, whatever they are doing."""
