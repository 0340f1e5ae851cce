"""The executor ``ray``: actors on this machine, or on all nodes of a Ray cluster."""

from __future__ import annotations

import json
from typing import Any

from fedmx.components.section import Count, Executor, NotNegative, Section


class RaySection(Section):
    """Actors of a Ray cluster, one processor each; needs the extra `ray`."""

    address: str | None = None
    """Address of a cluster; null starts one on this machine."""
    workers: Count | None = None
    """Actors; null: one for each processor."""
    clients: Count | None = None
    """Clients that an actor trains at once, as `cohort` does; null: one."""
    gpus: NotNegative = 0
    """GPUs of each actor."""


def _override(address: str) -> str:
    return f"{{address: {json.dumps(address)}}}"


def _start(section: RaySection) -> Any:
    from fedmx.simulation.executors.ray import RayBackend

    return RayBackend(section.workers, section.address, section.gpus)


EXECUTOR = Executor(
    takes=RaySection,
    default={},
    usage="ray[:ADDRESS]",
    override=_override,
    start=_start,
)
