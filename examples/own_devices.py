"""Your own devices and availability: some phones are old; half of them are off at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmx import Availability, Devices, Fleet, Presence, generator, trained_samples


@dataclass(frozen=True)
class Phones(Devices):
    """A phone is old with probability `old`; old phones train `slower` times as slowly."""

    old: float = 0.3
    slower: float = 4.0

    def draw(self, clients: int, seed: int) -> Fleet:
        old = generator(seed, "old").random(clients) < self.old
        return Drawn(np.where(old, 100 / self.slower, 100))


@dataclass(frozen=True, eq=False)
class Drawn(Fleet):
    samples_per_s: np.ndarray

    def train_s(self, client, samples, training):
        return trained_samples(samples, training) / float(self.samples_per_s[client])

    def upload_s(self, client, bytes, round):  # if no other client uploads
        return bytes / 1e5


@dataclass(frozen=True)
class Shifts(Availability):
    """Clients with even and odd numbers are available in turns of some minutes."""

    minutes: int = 10

    def of(self, clients: int, seed: int) -> Presence:
        return Turns(60 * self.minutes)


@dataclass(frozen=True)
class Turns(Presence):
    turn_s: int

    def there(self, client, at_s):
        return (at_s // self.turn_s + client) % 2 == 0

    def next_change_s(self, client, at_s):
        return (at_s // self.turn_s + 1) * self.turn_s
