"""The executor ``processes``: worker processes on this machine."""

from __future__ import annotations

from typing import Any

from fedmx.components.section import CountOrAll, Executor


def _override(argument: str) -> str | None:
    count = argument.isascii() and argument.isdigit() and int(argument) > 0
    return argument if count or argument == "all" else None


def _start(number: int | str) -> Any:
    from fedmx.simulation.executors.processes import ProcessBackend
    from layers.compute.bits import cores

    return ProcessBackend(number if isinstance(number, int) else cores())


EXECUTOR = Executor(
    takes=CountOrAll,
    default="all",
    usage="processes[:N]",
    override=_override,
    start=_start,
    text="Worker processes; `all`: one for each processor.",
)
