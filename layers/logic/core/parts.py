"""The parts of a logic, as the `check` of one part sees the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from layers.logic.core.messages import Layout, Training


class Parts(Protocol):
    """What a selector, an aggregator or a hook can ask about in its `check`; a `Logic` is one.

    The types of the selector, the aggregator and the hooks are left open: the files that define
    these classes import this one. Use `isinstance` to tell which one it is.
    """

    @property
    def layout(self) -> Layout:
        """Where each tensor lies in the flat vector."""

    @property
    def size(self) -> int:
        """Number of trainable parameters, d."""

    @property
    def selector(self) -> Any:
        """The `Selector`: who takes part."""

    @property
    def aggregator(self) -> Any:
        """The `Aggregator`: how contributions become the next state."""

    @property
    def hooks(self) -> Sequence[Any]:
        """Each `Hook`, in the order of their stages."""

    @property
    def training(self) -> Training:
        """How clients train."""

    @property
    def min_updates(self) -> int:
        """The fewest accepted updates with which a round succeeds."""

    @property
    def deadline_s(self) -> float | None:
        """How many seconds a round may take; None sets no limit."""

    @property
    def over_select(self) -> float:
        """How many times as many clients are asked as are needed."""
