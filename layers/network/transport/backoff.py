"""How long to wait before the next attempt to connect: exponential, with jitter from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from layers.network.errors import NetworkError


@dataclass(frozen=True)
class Backoff:
    """Delays of `first_s`, growing by `factor` up to `longest_s`, each shortened at random.

    A delay d becomes uniform in [(1 - jitter) d, d], so that clients that lost their server
    together do not come back together; give each its own `seed`.
    """

    first_s: float = 0.2
    factor: float = 2.0
    longest_s: float = 10.0
    jitter: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.longest_s and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise NetworkError(
                f"backoff {self}: first_s must be in (0, longest_s], factor at least 1, jitter in "
                "[0, 1]"
            )

    def delays_s(self) -> Iterator[float]:
        """Yield the delays of one series of attempts, without end."""
        draw = random.Random(self.seed)
        delay_s = self.first_s
        while True:
            yield delay_s * (1 - self.jitter * draw.random())
            delay_s = min(delay_s * self.factor, self.longest_s)
