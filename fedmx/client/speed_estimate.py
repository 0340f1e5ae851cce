"""A client's estimate of its own speed: of training, and of sending an update."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from layers.logic import Answer, Question, Task, Update
from layers.logic.clock.devices import trained_samples

WEIGHT = 0.5  # of the last measurement against those before it


@dataclass
class SpeedEstimate:
    """Exponential moving averages of measurements; None: nothing was measured yet.

    Attributes:
        sample_s: seconds of training for one sample.
        bytes_per_s: bandwidth of uploads.
        update_bytes: size of the last update.
    """

    sample_s: float | None = None
    bytes_per_s: float | None = None
    update_bytes: int = 0
    _sending: tuple[float, int] | None = None

    def trained(self, task: Task, update: Update, seconds: float) -> None:
        """Record the duration of a task's training."""
        samples = trained_samples(update.samples, task.training)
        if samples:
            self.sample_s = _averaged(self.sample_s, seconds / samples)

    def sending(self, bytes: int) -> None:
        """Record that an update of this size is queued for sending now."""
        self.update_bytes = bytes
        self._sending = time.monotonic(), bytes

    def sent(self) -> None:
        """Record that the update was sent completely."""
        if self._sending is not None:
            began, bytes = self._sending
            self._sending = None
            seconds = max(time.monotonic() - began, 1e-6)
            self.bytes_per_s = _averaged(self.bytes_per_s, bytes / seconds)

    @property
    def upload_s(self) -> float:
        """Estimated seconds of an upload; 0 if nothing was measured yet."""
        return self.update_bytes / self.bytes_per_s if self.bytes_per_s else 0.0

    def improve(self, answer: Answer, question: Question, samples: int) -> Answer:
        """Return the answer to a question about times, with the estimates as its values."""
        values = dict(answer.values)
        if self.sample_s is not None:
            values["train_s"] = self.sample_s * trained_samples(samples, question.training)
        values["upload_s"] = self.upload_s
        return replace(answer, values=values)


def _averaged(before: float | None, now: float) -> float:
    return now if before is None else WEIGHT * now + (1 - WEIGHT) * before
