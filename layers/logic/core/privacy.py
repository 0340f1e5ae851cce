"""The privacy of a run: what bounds and hides how much the data of one client change the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from layers.logic.core.preset import Preset
from layers.logic.errors import LogicError
from layers.settings import Settings


@dataclass(frozen=True)
class Mechanism:
    """What one round releases of the clients' data, for the accountant.

    Attributes:
        noise: the standard deviation of the Gaussian noise, as a multiple of the most that one
            client adds to the sum; None: it is still to be found for the budget.
        probability: q of Poisson sampling; 1: every client takes part.
        epsilon: of a mechanism without noise and delta, such as randomised response; None: it has
            noise.
        per_round: how many such sums, or updates, a round releases.
    """

    noise: float | None
    probability: float
    epsilon: float | None = field(default=None, kw_only=True)
    per_round: int = field(default=1, kw_only=True)

    goes_on: ClassVar[bool] = False
    """Whether the noise of a round depends on that of earlier rounds."""

    def releases(self, after: int, rounds: int) -> int:
        """Return how many sums with one client's update are released, each with noise of its own.

        Args:
            after: the number of rounds before the first that counts.
            rounds: the number of the last round that counts.
        """
        return (rounds - after) * self.per_round


@dataclass(frozen=True)
class Budget:
    """The privacy that a run may spend.

    Attributes:
        delta: the probability up to which the claim may fail.
        epsilon: the most that may be spent; None: it is only reported.
    """

    delta: float
    epsilon: float | None


@dataclass(frozen=True)
class Seen:
    """What others see of the clients' data; by default that of a run without privacy.

    Attributes:
        server: what the server sees.
        model: what other clients see, and whoever gets the model.
        traffic: what the network sees.
    """

    server: str = "each client's update, its metrics and its number of samples"
    model: str = "the models, which may depend on any client's data without a bound"
    traffic: str = "who takes part in which round and the sizes of messages"


class Privacy(Settings, ABC):
    """The privacy of a run; its settings are the attributes of a frozen dataclass."""

    refusal = LogicError

    @abstractmethod
    def applied(self, preset: Preset, clients: int) -> Preset:
        """Return the parts of a logic, made private.

        Args:
            preset: the parts without privacy.
            clients: N, the number of clients.

        Raises:
            LogicError: a part breaks what the claim rests on.
        """

    @property
    def seen(self) -> Seen:
        """What others see of the clients' data."""
        return Seen(model=f"the models, made private by {type(self).__name__}")


class DifferentialPrivacy(Privacy):
    """A privacy whose noise has an account."""

    @property
    @abstractmethod
    def budget(self) -> Budget | None:
        """The privacy that the run may spend; None: these settings add no noise."""

    @property
    def noise_of_clients(self) -> float | None:
        """The noise of one task, as `Mechanism.noise`, if clients add it; None: they trust the
        server with it, or there is none."""
        return None

    @abstractmethod
    def mechanism(self, preset: Preset) -> Mechanism:
        """Return what a round with these private parts releases."""

    def once(self) -> Mechanism | None:
        """Return what clients release once, before their first round, besides; None: nothing."""
        return None

    @abstractmethod
    def with_noise(self, preset: Preset, noise: float) -> Preset:
        """Return the private parts with the noise that was found for the budget."""
