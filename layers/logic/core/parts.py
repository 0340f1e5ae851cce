"""The parts of a logic, as the `check` of each part sees the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from layers.logic.core.messages import Layout, Training


class Parts(Protocol):
    """The information that a `check` of a selector, an aggregator or a hook gets; a `Logic` is one.

    The types of the selector, the aggregator, the hooks and the trainer are open, since the files
    that define these classes import this one. Use `isinstance` to find out the class.
    """

    @property
    def layout(self) -> Layout:
        """Where each tensor lies in the flat vector."""

    @property
    def size(self) -> int:
        """Number of trainable parameters, d."""

    @property
    def selector(self) -> Any:
        """The `Selector`, which chooses the clients of a round."""

    @property
    def aggregator(self) -> Any:
        """The `Aggregator`, which turns contributions into the next state."""

    @property
    def hooks(self) -> Sequence[Any]:
        """The `Hook` objects, in the order of their stages."""

    @property
    def trainer(self) -> Any:
        """The `Trainer`, which makes a client's update."""

    @property
    def local_tensors(self) -> Any:
        """The `LocalTensors` that stay on each client; None: all are sent."""

    @property
    def training(self) -> Training:
        """How clients train."""

    @property
    def clients(self) -> int | None:
        """N, the number of clients of the experiment; None: not known."""

    @property
    def min_updates(self) -> int:
        """The smallest number of accepted updates of a successful round."""

    @property
    def deadline_s(self) -> float | None:
        """Seconds that a round may take; None: no limit."""

    @property
    def over_select(self) -> float:
        """Factor by which more clients are asked than needed, 1 or more."""
