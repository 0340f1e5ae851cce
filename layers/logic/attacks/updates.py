"""Attacks on updates by liars that know nothing of the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layers.logic.core.attack import Attack
from layers.logic.core.hook import ClientContext
from layers.settings import NotNegative, Positive


@dataclass(frozen=True)
class SignFlip(Attack):
    """Liars send minus `scale` times their update (Li et al. 2019, RSA, section 5).

    Attributes:
        scale: the factor, above 0.
    """

    name = "sign-flip"

    scale: Positive = 1.0

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        return delta * np.float32(-self.scale)


@dataclass(frozen=True)
class Scaling(Attack):
    """Liars send `scale` times their update (Bagdasaryan et al. 2020, model replacement).

    Attributes:
        scale: the factor, above 0.
    """

    name = "scaling"

    scale: Positive = 10.0

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        return delta * np.float32(self.scale)


@dataclass(frozen=True)
class Gaussian(Attack):
    """Liars send normal noise in place of their update (Blanchard et al. 2017, section 5).

    Attributes:
        sigma: the standard deviation of each value.
    """

    name = "gaussian"

    sigma: Positive = 1.0

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
        sigma: the standard deviation of the noise; 0: none.
    """

    name = "free-rider"

    sigma: NotNegative = 0.0

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the change of the model since the liar's last round."""
        before = context.memory.get("received", context.start)
        context.keep(received=context.start.copy())
        drawn = context.rng("noise").standard_normal(delta.size, np.float32)
        return np.asarray(context.start - before + drawn * np.float32(self.sigma))
