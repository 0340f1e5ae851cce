"""The metric: a number that says how good a model is, from sums over samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from layers.compute.data.targets import KINDS, Targets
from layers.compute.errors import ComputeError
from layers.settings import Settings


class Metric(Settings, ABC):
    """A metric; its settings are the fields of a frozen dataclass.

    `init` gives the state of no samples, `add` that of some more, and `finish` the value. A state
    is an array of sums, float64, so the states of several batches or clients add up; clients send
    their states, never their samples.

    Attributes:
        name: its name in an experiment file.
        label: its name in a report.
        unit: a share is from 0 to 1, and shown as a percentage; `table` is of several numbers.
        better: whether a `higher` or a `lower` value is better.
        TARGETS: the kinds of targets that it is for; see `Targets`.
        SUMS: whether states add up. If not, `add` collects what it needs, and the value over
            clients is the mean of theirs, weighted by their samples.
    """

    refusal = ComputeError

    name: ClassVar[str] = ""
    label: ClassVar[str] = ""
    unit: ClassVar[Literal["share", "number", "table"]] = "share"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    TARGETS: ClassVar[tuple[str, ...]] = KINDS
    SUMS: ClassVar[bool] = True

    @property
    def key(self) -> str:
        """Its name in all outputs, such as `macro_f1`; that of its class if it has no name."""
        return (self.name or type(self).__name__.lower()).replace("-", "_")

    def check(self, targets: Targets) -> None:
        """Check that the metric is for these targets.

        Raises:
            ComputeError: it is not.
        """
        if targets.kind not in self.TARGETS:
            raise ComputeError(
                f"metric {self.key.replace('_', '-')} is for targets of the kind "
                f"{' or '.join(self.TARGETS)}, and the data have {targets}"
            )

    @abstractmethod
    def init(self, targets: Targets) -> np.ndarray:
        """Return the state of no samples, float64."""

    @abstractmethod
    def add(self, state: np.ndarray, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the state with further samples.

        Args:
            state: the state so far.
            outputs: probabilities (n, classes), (n, labels) or (n, places, tokens), or predicted
                real values (n, values); float64.
            targets: the targets, (n, ...).
        """

    @abstractmethod
    def finish(self, state: np.ndarray) -> Any:
        """Return the value of a state: a float, or lists of floats; NaN: it has none."""
