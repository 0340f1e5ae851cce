"""Devices by name: how fast each client trains, uploads and downloads."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from layers.arithmetic import exp
from layers.logic.core.messages import Training
from layers.logic.errors import LogicError
from layers.logic.seeds import generator
from layers.settings import Positive, Settings

SMALL = 10_000
"""Up to this number of clients, the draws of a round are made for all clients together."""


class Fleet(ABC):
    """The devices of all clients, as they were drawn."""

    @abstractmethod
    def train_s(self, client: int, samples: int, training: Training) -> float:
        """Return the seconds that a client with `samples` samples trains."""

    @abstractmethod
    def upload_s(self, client: int, bytes: int, round: int) -> float:
        """Return the seconds of an upload that has the channel to itself."""

    def download_s(self, client: int, bytes: int, round: int) -> float:
        """Return the seconds of a download; downloads do not slow one another."""
        return 0.0


class Devices(Settings, ABC):
    """A distribution of devices; the settings are the attributes of a frozen dataclass."""

    refusal = LogicError

    @abstractmethod
    def draw(self, clients: int, seed: int) -> Fleet:
        """Return the devices of clients 0 to `clients` - 1."""


def trained_samples(samples: int, training: Training) -> int:
    """Return how many samples a client trains on, counted once for each time."""
    if training.steps is None:
        return training.epochs * samples
    return training.steps * (min(training.batch_size, samples) or samples)


@dataclass(frozen=True)
class _Rates(Fleet):
    """Training speeds and bandwidths that do not change, float64 (N,) each."""

    samples_per_s: np.ndarray
    up_bytes_per_s: np.ndarray
    down_bytes_per_s: np.ndarray

    def train_s(self, client: int, samples: int, training: Training) -> float:
        return trained_samples(samples, training) / float(self.samples_per_s[client])

    def upload_s(self, client: int, bytes: int, round: int) -> float:
        return bytes / float(self.up_bytes_per_s[client])

    def download_s(self, client: int, bytes: int, round: int) -> float:
        return bytes / float(self.down_bytes_per_s[client])


@dataclass(frozen=True)
class Range(Devices):
    """Each speed is drawn uniformly between two bounds.

    Attributes:
        samples_per_s: bounds of the training speed, in samples a second.
        up_bytes_per_s: bounds of the uplink's bandwidth.
        down_bytes_per_s: bounds of the downlink's bandwidth.
    """

    samples_per_s: tuple[float, float] = (100.0, 1000.0)
    up_bytes_per_s: tuple[float, float] = (1e5, 1e6)
    down_bytes_per_s: tuple[float, float] = (1e6, 1e7)

    def __post_init__(self) -> None:
        for name in ("samples_per_s", "up_bytes_per_s", "down_bytes_per_s"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf:
                raise LogicError(
                    f"{name}=[{low}, {high}] must be two finite bounds above 0, lower first"
                )

    def draw(self, clients: int, seed: int) -> Fleet:
        rng = generator(seed, "devices")
        return _Rates(
            rng.uniform(*self.samples_per_s, clients),
            rng.uniform(*self.up_bytes_per_s, clients),
            rng.uniform(*self.down_bytes_per_s, clients),
        )


@dataclass(frozen=True)
class Lognormal(Devices):
    """Each speed is its median times exp(sigma z), z standard normal: a few are far from it.

    Attributes:
        samples_per_s: median training speed, in samples a second.
        up_bytes_per_s: median bandwidth of the uplink.
        down_bytes_per_s: median bandwidth of the downlink.
        sigma: standard deviation of the logarithms; 0 makes all devices equal.
    """

    samples_per_s: Positive = 500.0
    up_bytes_per_s: Positive = 5e5
    down_bytes_per_s: Positive = 5e6
    sigma: Annotated[float, Ge(0), Le(10)] = 0.5

    def draw(self, clients: int, seed: int) -> Fleet:
        spread = exp(self.sigma * generator(seed, "devices").standard_normal((3, clients)))
        return _Rates(
            self.samples_per_s * spread[0],
            self.up_bytes_per_s * spread[1],
            self.down_bytes_per_s * spread[2],
        )


@dataclass(frozen=True)
class Tiers(Devices):
    """Some kinds of devices, each with its share of the clients.

    Attributes:
        tiers: a list of kinds; each has `share`, `samples_per_s`, `up_bytes_per_s` and
            `down_bytes_per_s`. The shares are scaled to a sum of 1.
    """

    tiers: Sequence[Mapping[str, Any]] = (
        {"share": 0.5, "samples_per_s": 200, "up_bytes_per_s": 2e5, "down_bytes_per_s": 2e6},
        {"share": 0.5, "samples_per_s": 2000, "up_bytes_per_s": 2e6, "down_bytes_per_s": 2e7},
    )

    def __post_init__(self) -> None:
        needed = {"share", "samples_per_s", "up_bytes_per_s", "down_bytes_per_s"}
        if not self.tiers:
            raise LogicError("tiers: the list is empty; give one kind of device or more")
        for place, tier in enumerate(self.tiers):
            if not isinstance(tier, Mapping) or set(tier) != needed:
                raise LogicError(f"tiers.{place}: must have {', '.join(sorted(needed))}")
            for name, value in tier.items():
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if not number or not 0 < value < math.inf:
                    raise LogicError(
                        f"tiers.{place}.{name} must be a number above 0 and finite, not {value}"
                    )

    def draw(self, clients: int, seed: int) -> Fleet:
        """Give each kind its share of the clients, up to rounding, in a random order."""
        shares = np.cumsum([float(tier["share"]) for tier in self.tiers])
        bounds = np.floor(clients * shares / shares[-1] + 0.5)
        order = generator(seed, "devices").permutation(clients)
        kind = np.empty(clients, np.int64)
        kind[order] = np.searchsorted(bounds, np.arange(clients), side="right")

        def of(name: str) -> np.ndarray:
            return np.take([float(tier[name]) for tier in self.tiers], kind)

        return _Rates(of("samples_per_s"), of("up_bytes_per_s"), of("down_bytes_per_s"))


@dataclass(frozen=True)
class Knapsack(Devices):
    """The system model of the knapsack papers: t^UC = c M / f, t^UL = D / (gamma B log2(1 + SNR)).

    Eqs. (1) and (2). Training takes the same time each round, whatever the number of samples; the
    channel's gain |h|^2 = SNR is drawn from Exp(1) for every client and round.

    Attributes:
        cycles: c, the work on one bit.
        bits: M, the work of a round in bits.
        speed: bounds of f in bits a second, drawn uniformly.
        upload_s: D / (gamma B), seconds of an upload at SNR 1.
    """

    cycles: Positive = 5.0
    bits: Positive = 50.0
    speed: tuple[float, float] = (1.0, 9.0)
    upload_s: Positive = 100.0

    def __post_init__(self) -> None:
        low, high = self.speed
        if not 0 < low <= high < math.inf:
            raise LogicError(
                f"speed=[{low}, {high}] must be two finite bounds above 0, lower first"
            )

    def draw(self, clients: int, seed: int) -> Fleet:
        speeds = generator(seed, "devices").uniform(*self.speed, clients)
        return KnapsackFleet(self, speeds, seed)


@dataclass(frozen=True, eq=False)
class KnapsackFleet(Fleet):
    """Speeds f, float64 (N,), and a channel that changes from round to round."""

    model: Knapsack
    speeds: np.ndarray
    seed: int

    def train_s(self, client: int, samples: int, training: Training) -> float:
        """Return t^UC, eq. (1)."""
        return self.model.cycles * self.model.bits / float(self.speeds[client])

    def upload_s(self, client: int, bytes: int, round: int) -> float:
        """Return t^UL, eq. (2)."""
        if len(self.speeds) > SMALL:  # then only those of the cohort are drawn
            own = generator(self.seed, "channel", round, client).exponential()
            return upload_time(self.model.upload_s, own)
        return upload_time(self.model.upload_s, self.snr(round)[client])

    def snr(self, round: int) -> np.ndarray:
        """Return every client's signal-to-noise ratio in a round, float64 (N,); N at most SMALL."""
        return _exponential(self.seed, round, len(self.speeds))


def upload_time(unit_s: float, snr: float) -> float:
    """Return D / (gamma B log2(1 + SNR)), given D / (gamma B) in seconds."""
    return unit_s / math.log2(1.0 + float(snr))


@lru_cache(maxsize=4)
def _exponential(seed: int, round: int, clients: int) -> np.ndarray:
    return generator(seed, "channel", round).exponential(1.0, clients)
