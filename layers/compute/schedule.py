"""Learning-rate schedules: the rate of each round, from the base rate and the round's number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi
from typing import Protocol

from layers.compute.errors import ComputeError
from layers.settings import Count, Positive, Settings, Share, WholeNumber


class Schedule(Protocol):
    """Gives the learning rate of each round."""

    def learning_rate(self, base: float, t: int, rounds: int) -> float:
        """Return the rate of round `t` (from 0) of `rounds`, for the base rate `base`."""


@dataclass(frozen=True)
class Constant:
    """The base rate in every round."""

    def learning_rate(self, base: float, t: int, rounds: int) -> float:
        """Return `base`."""
        return base


class _Settings(Settings):
    refusal = ComputeError


@dataclass(frozen=True)
class Step(_Settings):
    """The base rate times `gamma` after every `every` rounds: `base * gamma ** (t // every)`."""

    every: Count = 100
    gamma: Positive = 0.1

    def learning_rate(self, base: float, t: int, rounds: int) -> float:
        """Return `base * gamma ** (t // every)`."""
        return float(base * self.gamma ** (t // self.every))


@dataclass(frozen=True)
class Inverse(_Settings):
    """The base rate divided by the round's number: `base / (1 + start + t)`.

    Attributes:
        start: the number of the first round, for an algorithm that takes steps before it.
    """

    start: WholeNumber = 0

    def learning_rate(self, base: float, t: int, rounds: int) -> float:
        """Return `base / (1 + start + t)`."""
        return base / (1 + self.start + t)


@dataclass(frozen=True)
class Cosine(_Settings):
    """Half a cosine from the base rate down to `floor * base` (Loshchilov & Hutter 2017, eq. 5)."""

    floor: Share = 0.0

    def learning_rate(self, base: float, t: int, rounds: int) -> float:
        """Return the rate; from round `rounds` on it is `floor * base`."""
        done = min(1.0, t / rounds) if rounds > 0 else 1.0
        return base * (self.floor + (1 - self.floor) * (1 + cos(pi * done)) / 2)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Constant,
    "step": Step,
    "inverse": Inverse,
    "cosine": Cosine,
}
