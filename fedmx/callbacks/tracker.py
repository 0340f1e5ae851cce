"""The base of callbacks that tell a tracker of experiments of a run, each round once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmx.callbacks.tracked import numbers_in
from fedmx.server.callback import Callback, Running
from fedmx.server.round import Round


@dataclass
class Tracker(Callback):
    """Sends each round's numbers once, those before a resume included.

    A round that comes again, after a step back, is sent again.
    """

    _run: Running | None = field(default=None, init=False, repr=False)  # once it is known there
    _sent: int = field(default=0, init=False, repr=False)  # the last round that the tracker has

    @abstractmethod
    def _send(self, round: int, numbers: Mapping[str, float]) -> None:
        """Send the numbers of a round."""

    def _go_on(self, run: Running, sent: int) -> None:
        """Send the run's rounds after those that the tracker has already."""
        self._sent = sent
        for record in run.records:
            self._send_once(record)

    def on_round(self, round: Round) -> None:
        """Send the numbers of a round."""
        if round.stepped_back:
            self._sent = min(self._sent, round.round - 1)
        self._send_once(round.record())

    def _send_once(self, record: Mapping[str, Any]) -> None:
        if record["round"] > self._sent:
            self._send(record["round"], numbers_in(record))
            self._sent = record["round"]
