"""The clock of a simulation without devices: it reports real time, and uses no virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layers.logic.clock.devices import Devices, Fleet
from layers.logic.clock.real import RealClock
from layers.logic.clock.timesheet import Stamp
from layers.logic.clock.virtual import DEADLINE, VirtualClock
from layers.logic.core.messages import Training
from layers.logic.core.report import Times


@dataclass(frozen=True)
class _NoTime(Devices, Fleet):
    """Devices that need no time."""

    def draw(self, clients: int, seed: int) -> Fleet:
        return self

    def train_s(self, client: int, samples: int, training: Training) -> float:
        return 0.0

    def upload_s(self, client: int, bytes: int, round: int) -> float:
        return 0.0


class InstantClock(VirtualClock):
    """A clock whose events come in the order in which clients were asked; durations are real."""

    virtual = False

    def __init__(self, clients: int) -> None:
        self._real = RealClock()
        super().__init__(clients, _NoTime())

    def begin(
        self,
        turns: Sequence[int] | None = None,
        before_s: float = 0.0,
        after_s: float = 0.0,
        continues: bool = False,
    ) -> None:
        """Begin a round; nothing takes virtual time."""
        super().begin(turns, continues=continues)
        self._real.begin(self._outstanding)

    def set_timer(self, name: str, at_s: float | None) -> None:
        """Set a timer, unless it is the deadline: without devices nothing takes time."""
        if name != DEADLINE:
            super().set_timer(name, at_s)

    @property
    def elapsed_s(self) -> float:
        """Real seconds since the round began; its real duration once it has ended."""
        return self._real.elapsed_s

    @property
    def run_s(self) -> float:
        """Virtual seconds since the run began, always 0."""
        return 0.0

    def ask(self, client: int, samples: int, training: Training, bytes: int, round: int) -> None:
        super().ask(client, samples, training, bytes, round)
        self._real.ask(client, again=self._continues)

    def close(self) -> None:
        super().close()
        self._real.end()

    def times(self) -> Mapping[int, Times]:
        """Return the times of each client of the round, in real time."""
        return self._real.times()

    def _note(self, client: int, stamp: Stamp, at_s: float) -> None:
        super()._note(client, stamp, at_s)
        if stamp != "sending_s":  # no upload takes real time
            self._real.note(client, stamp)
