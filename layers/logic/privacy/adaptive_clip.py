"""Adaptive clipping: the clip follows a quantile of the norms of the updates, privately.

Source: Andrew, Thakkar, McMahan and Ramaswamy 2021, "Differentially private learning with adaptive
clipping", algorithm 1, with shifted bits as tensorflow-privacy has them.

Each client says with a bit b whether the norm of its update is at most C. The server adds noise of
deviation sigma_b to the sum of the shifted bits b - 1/2, and estimates the share of such clients:

    b~ = min(1, max(0, (sum (b - 1/2) + sigma_b z) / m + 1/2)),  C <- C exp(-rate (b~ - quantile))

m = q N is the expected number of clients. A client changes the sum of the shifted bits by 1/2,
while one of plain bits divided by the real number of clients has no such bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from layers.logic.errors import LogicError

MOST = 1e6  # how far the clip may move from where it began, either way


@dataclass(frozen=True)
class AdaptiveClip:
    """How the clip follows the norms.

    Attributes:
        quantile: gamma, the share of clients whose update should not be clipped.
        rate: of the geometric steps.
        bit_noise: sigma_b, the standard deviation of the noise on the sum of the bits.
        expected: m, the expected number of clients.
    """

    quantile: float
    rate: float
    bit_noise: float
    expected: float

    def noise_of_update(self, noise: float) -> float:
        """Return z_delta, with which update and bit together cost what one of noise z costs.

        Raises:
            LogicError: the bits alone cost more: sigma_b is z / 2 or less.
        """
        if self.bit_noise <= noise / 2:
            raise LogicError(
                f"bit_noise must be above half of the noise, {noise / 2:g}, not "
                f"{self.bit_noise:g}: the bits alone would spend more than the whole budget"
            )
        return 1 / math.sqrt(1 / noise**2 - 1 / (2 * self.bit_noise) ** 2)

    def next(self, clip: float, first: float, noisy_bits: float) -> float:
        """Return the clip of the next round.

        Args:
            clip: C of this round.
            first: C of round 1, from which it moves by a factor of `MOST` at most.
            noisy_bits: the sum of the shifted bits, with noise.
        """
        share = min(1.0, max(0.0, noisy_bits / self.expected + 0.5))
        after = clip * math.exp(-self.rate * (share - self.quantile))
        return min(max(after, first / MOST), first * MOST)
