"""The executor ``cohort``: many clients at once in this process, on the engine `torch`."""

from __future__ import annotations

from fedmx.components.section import Count, Executor, Section


class CohortSection(Section):
    """Many clients at once in this process, for `engine: torch` on a GPU
    ([more](scale.md#many-clients-at-once))."""

    clients: Count = 32
    """The most clients at once; fewer if the device lacks memory."""


def _override(argument: str) -> str | None:
    count = argument.isascii() and argument.isdigit() and int(argument) > 0
    return f"{{clients: {argument}}}" if count else None


EXECUTOR = Executor(
    takes=CohortSection,
    default={},
    usage="cohort[:N]",
    override=_override,
    start=None,
)
