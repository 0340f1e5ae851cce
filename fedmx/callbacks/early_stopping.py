"""Ends a run when its model gets no better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmx.components.text import unknown
from fedmx.errors import FedmxError
from fedmx.server.callback import Callback, Running
from fedmx.server.round import Round

_BETTER = {"accuracy": 1, "client_accuracy_mean": 1, "loss": -1, "train_loss": -1}


@dataclass
class EarlyStopping(Callback):
    """Ends a run when a measure has not improved for some evaluations (patience).

    Its state is what the rounds say, so that a resumed run ends where the uninterrupted one does.

    Attributes:
        patience: evaluations without an improvement after which the run ends; at least 1.
        measure: ``accuracy`` or ``client_accuracy_mean`` (more is better), ``loss`` or
            ``train_loss`` (less is better); see `Round`.
        least: by how much more than this a value must be better to count as an improvement.
    """

    patience: int = 5
    measure: str = "accuracy"
    least: float = 0.0
    _values: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.measure not in _BETTER:
            raise FedmxError(f"EarlyStopping: {unknown('measure', self.measure, _BETTER)}")
        if not isinstance(self.patience, int) or self.patience < 1:
            raise FedmxError(
                f"EarlyStopping: patience must be a whole number from 1, not {self.patience!r}"
            )
        if not (math.isfinite(self.least) and self.least >= 0):
            raise FedmxError(f"EarlyStopping: least must be at least 0, not {self.least!r}")

    def on_begin(self, run: Running) -> None:
        """Take the rounds before a resume.

        Raises:
            FedmxError: the run does not measure it.
        """
        if (
            self.measure == "client_accuracy_mean"
            and run.experiment is not None
            and not run.experiment.compute.evaluate.per_client
        ):
            raise FedmxError(
                "EarlyStopping: client_accuracy_mean is not measured; set "
                "compute.evaluate.per_client to true"
            )
        self._values.clear()
        for record in run.records:
            self._take(record)

    def stop(self, round: Round) -> str | None:
        """Return a reason when the patience is at its end."""
        for later in [one for one in self._values if one >= round.round]:  # after a step back
            del self._values[later]
        if not self._take(round.record()):
            return None
        best, at, since = -math.inf, 0, 0
        for number, value in self._values.items():
            since += 1
            if value > best + self.least:
                best, at, since = value, number, 0
        if since < self.patience:
            return None
        if at == 0:
            return f"{self.measure} was no number in {since} evaluations"
        return (
            f"{self.measure} is no better than {best * _BETTER[self.measure]:.4g} of round {at} "
            f"since {since} evaluation{'s' if since > 1 else ''}"
        )

    def _take(self, record: Mapping[str, Any]) -> bool:
        """Keep a round's value if it was measured; a value that is no number is the worst."""
        if self.measure != "train_loss" and record.get("accuracy") is None:
            return False  # the round was not evaluated
        value = record.get(self.measure)
        if value is None or not math.isfinite(value):
            value = -math.inf * _BETTER[self.measure]
        self._values[record["round"]] = _BETTER[self.measure] * value
        return True
