"""Attacks on updates by liars that know nothing of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layers.logic.core.attack import Attack
from layers.logic.core.hook import ClientContext
from layers.logic.errors import LogicError


@dataclass(frozen=True)
class SignFlip(Attack):
    """Liars send minus `scale` times their update (Li et al. 2019, RSA, section 5).

    Attributes:
        clients: the clients that lie, a share or a list.
        scale: the factor, above 0.
    """

    name = "sign-flip"

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("scale", self.scale)

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the update in the other direction."""
        return delta * np.float32(-self.scale)


@dataclass(frozen=True)
class Scaling(Attack):
    """Liars send `scale` times their update (Bagdasaryan et al. 2020, model replacement).

    Attributes:
        clients: the clients that lie, a share or a list.
        scale: the factor, above 0.
    """

    name = "scaling"

    scale: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("scale", self.scale)

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the larger update."""
        return delta * np.float32(self.scale)


@dataclass(frozen=True)
class Gaussian(Attack):
    """Liars send normal noise in place of their update (Blanchard et al. 2017, section 5).

    Attributes:
        clients: the clients that lie, a share or a list.
        sigma: the standard deviation of each value.
    """

    name = "gaussian"

    sigma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive("sigma", self.sigma)

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return noise, another one for each liar and round."""
        drawn = context.rng("noise").standard_normal(delta.size, np.float32)
        return drawn * np.float32(self.sigma)


@dataclass(frozen=True)
class FreeRider(Attack):
    """Liars did not train: they send the last change of the global model, with noise.

    Source: Lin et al. 2019, "Free-riders in federated learning", delta weights attack; the noise is
    that of Fraboni et al. 2021. In its first round a liar sends the noise alone.

    Attributes:
        clients: the clients that lie, a share or a list.
        sigma: the standard deviation of the noise; 0: none.
    """

    name = "free-rider"

    sigma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.sigma < math.inf:
            raise LogicError(f"sigma must be 0 or more and finite, not {self.sigma}")

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the change of the model since the liar's last round."""
        before = context.memory.get("received", context.start)
        context.keep(received=context.start.copy())
        drawn = context.rng("noise").standard_normal(delta.size, np.float32)
        return np.asarray(context.start - before + drawn * np.float32(self.sigma))


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise LogicError(f"{name} must be above 0 and finite, not {value}")
