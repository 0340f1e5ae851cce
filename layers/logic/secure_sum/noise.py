"""Noise in a sum of whole numbers: each client adds a share of it, and nobody knows all of it.

Source: Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated
learning with secure aggregation".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from layers.logic.errors import LogicError
from layers.logic.numeric.discrete_gaussian import discrete_gaussian
from layers.logic.numeric.vectors import norm
from layers.logic.secrets import SecretDraws
from layers.logic.secure_sum.graph import corrupt_among
from layers.logic.secure_sum.roster import SumRefused
from layers.logic.secure_sum.whole_numbers import MOST_BITS, VALUE_BITS, rounded

STEPS = 1 << (VALUE_BITS - 1)
"""The whole number of a value of C; also the most norm of a client's whole numbers."""

LEAST_DEVIATION = 4.0
"""Of one client's noise, in steps. A sum of discrete Gaussians of this deviation differs from one
discrete Gaussian by tau < 10^-67 for up to a million clients (theorem 1 of the paper)."""

SMOOTH = 2.0
"""Noise of this deviation, in steps, rounds a continuous Gaussian to whole numbers. The result is a
discrete Gaussian of both variances together, but for a factor within 1 +- 10^-33: so a discrete
Gaussian is as private as the continuous one with a variance that is less by SMOOTH^2."""

TAIL = 12.0
"""The noise of a value in a sum exceeds so many deviations with a probability below 10^-30."""


@dataclass(frozen=True)
class SharedNoise:
    """The noise of a sum, of which each client adds its share.

    The share is so large that the clients of the smallest sum have the noise together, although
    corrupt ones among them add none or know theirs.

    Attributes:
        multiple: sigma, the deviation of the noise as a multiple of C.
        min_clients: the fewest clients of a sum.

    Raises:
        LogicError: the share of a client is less than `LEAST_DEVIATION`.
    """

    multiple: float
    min_clients: int

    def __post_init__(self) -> None:
        least = self.multiple * STEPS / math.sqrt(self.min_clients - 1)
        if least < LEAST_DEVIATION:
            raise LogicError(
                f"noise {self.multiple:g} among {self.min_clients} clients is {least:.2f} steps of "
                f"a client's whole numbers, and {LEAST_DEVIATION:g} are needed; raise noise, or "
                "lower min_clients"
            )

    @property
    def accounted(self) -> float:
        """Sigma of the continuous Gaussian mechanism that is no more private; see `SMOOTH`."""
        return math.sqrt(self.multiple**2 - (SMOOTH / STEPS) ** 2)

    def deviation(self, clients: int) -> float:
        """Return the standard deviation of one client's noise, in steps.

        Args:
            clients: the clients of the round, of which 5 % are corrupt, and one at least: each
                client knows its own noise, and gets the model.

        Raises:
            SumRefused: they may all be corrupt in the smallest sum.
        """
        corrupt = max(corrupt_among(clients), 1)
        if self.min_clients <= corrupt:
            raise SumRefused(
                f"of {clients} clients {corrupt} may be in league with the server, which a sum of "
                f"{self.min_clients} does not hide; raise min_clients in privacy"
            )
        return self.multiple * STEPS / math.sqrt(self.min_clients - corrupt)

    def word_bits(self, clients: int) -> int:
        """Return the bits of a word with room for the sum of so many values and their noise.

        Values have room for sure; the noise, up to `TAIL` deviations. More of it changes that value
        by 2^bits steps, and tells nobody more: the sum modulo 2^bits follows from the noisy sum.

        Raises:
            SumRefused: there is no such word.
        """
        most = clients * STEPS + math.ceil(TAIL * self.deviation(clients) * math.sqrt(clients))
        if (bits := most.bit_length() + 1) > MOST_BITS:
            raise SumRefused(
                f"the sum of {clients} clients with noise {self.multiple:g} needs words of {bits} "
                f"bits, and {MOST_BITS} are the most; lower noise, or select fewer clients"
            )
        return bits

    def hidden(
        self,
        values: np.ndarray,
        clip: float,
        clients: int,
        draws: SecretDraws,
        uniforms: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return clipped values as whole numbers with this client's noise, uint32, modulo 2^32.

        Args:
            values: float64 (d,).
            clip: C.
            clients: those of the round.
            draws: of this client, for this sum alone.
            uniforms: see `rounded`.
        """
        noise = discrete_gaussian(draws, self.deviation(clients), values.size)
        return np.asarray(in_steps(values, clip, uniforms) + noise).astype(np.uint32)


def in_steps(values: np.ndarray, clip: float, uniforms: np.ndarray | None = None) -> np.ndarray:
    """Return values as whole numbers, int64 (d,), whose norm is `STEPS` at most.

    Rounding may lengthen a vector; it is then scaled down until its whole numbers are no longer
    than those of C. The squares are summed exactly.

    Args:
        values: float64 (d,), finite.
        clip: C, the largest norm that is kept.
        uniforms: see `rounded`.
    """
    factor = STEPS / max(clip, norm(values))
    while True:
        whole = rounded(values * factor, uniforms).astype(np.int64)
        squares = int(np.add.reduce(whole * whole))
        if squares <= STEPS**2:
            return whole
        factor *= min(STEPS / math.sqrt(squares), 1 - 2.0**-40)


def out_of_steps(total: np.ndarray, bits: int, clip: float) -> np.ndarray:
    """Return the sum of values, float64, from the sum of whole numbers modulo 2^bits, int64."""
    half = 1 << (bits - 1)
    signed = (total + half) % (1 << bits) - half
    return np.asarray(signed * (clip / STEPS))
