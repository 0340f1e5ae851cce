"""Attacks of liars that know the honest updates of their round, and all send the same vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt

from layers.arithmetic import total
from layers.logic.core.attack import Collusion
from layers.logic.core.declaration import Need
from layers.settings import FINITE, Positive, WholeNumber

NEEDS = frozenset({Need.EACH_CLIENT, Need.ONE_VERSION, Need.WHOLE_UPDATES})
"""What every collusion needs: it replaces the update of a single client by a whole vector, which
is made of updates that start from the same model."""


@dataclass(frozen=True)
class LittleIsEnough(Collusion):
    """mu + z sigma of the honest updates, per coordinate (Baruch et al. 2019, ALIE, algorithm 3).

    Attributes:
        z: how many standard deviations; null: z_max of the paper, the most at which a majority is
            on the side of the liars.
    """

    name = "alie"

    z: Annotated[float, FINITE] | None = None

    requires = NEEDS

    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        """Return the mean, moved by z standard deviations of the sample."""
        z = self._z_max(len(honest), malicious) if self.z is None else self.z
        return np.asarray(_mean(honest) + z * _deviation(honest))

    @staticmethod
    def _z_max(honest: int, malicious: int) -> float:
        """Return the z at which so many honest updates lie beyond as the liars need."""
        number = honest + malicious
        supporters = number // 2 + 1 - malicious
        share = (honest - supporters) / honest
        return NormalDist().inv_cdf(share) if 0 < share < 1 else 0.0


@dataclass(frozen=True)
class InnerProduct(Collusion):
    """-epsilon times the mean of the honest updates (Xie et al. 2020, inner-product manipulation).

    Attributes:
        epsilon: the factor, above 0.
    """

    name = "inner-product"

    epsilon: Positive = 0.5

    requires = NEEDS

    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(-self.epsilon * _mean(honest))


@dataclass(frozen=True)
class Mimic(Collusion):
    """The update of one honest client, which so counts several times (Karimireddy et al. 2022).

    Attributes:
        place: the place of this client among the honest ones of the round.
    """

    name = "mimic"

    place: WholeNumber = 0

    requires = NEEDS

    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        return np.array(honest[min(self.place, len(honest) - 1)])


@dataclass(frozen=True)
class FangTrim(Collusion):
    """In each coordinate a value beyond all honest ones, against the direction of their mean.

    Source: Fang et al. 2020, section 4.3: the attack on the trimmed mean and the median, with full
    knowledge. Where the mean goes up, the value lies below the least honest one, by a random
    factor; where it goes down, above the largest. All liars of a round send the same vector.

    Attributes:
        beyond: b, the largest factor; 2 in the paper.
    """

    name = "fang-trim"

    beyond: Annotated[float, Gt(1), FINITE] = 2.0

    requires = NEEDS

    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        """Return values between the last honest one and `beyond` times, or part of, it."""
        up = _mean(honest) > 0
        edge = np.where(up, honest.min(axis=0), honest.max(axis=0))
        away = np.where(up == (edge > 0), 1 / self.beyond, self.beyond)
        share = rng.random(edge.size)
        return np.asarray(edge * (1 + share * (away - 1)))


SMALLEST = 1e-5  # lambda, below which the search of `FangKrum` ends, as in the paper


@dataclass(frozen=True)
class FangKrum(Collusion):
    """-lambda times the sign of the mean of the honest updates, as far as Krum still takes it.

    Source: Fang et al. 2020, section 4.2: the attack on Krum, with full knowledge. Krum is told the
    right number of liars. lambda is halved from the paper's upper bound until Krum takes the lie,
    or until it is below 1e-5. All liars of a round send the same vector.
    """

    name = "fang-krum"

    requires = NEEDS

    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        sign, distances = np.sign(_mean(honest)), _squared_distances(honest)
        length, norms = _square(sign), np.array([_square(one) for one in honest])
        along = np.array([total(sign * one) for one in honest])
        number = max(len(honest) - 2, 1)  # of neighbours in Krum's score: m - c - 2
        nearest = np.sqrt(np.sort(distances, axis=1)[:, 1 : number + 1]).sum(axis=1)
        others = max(len(honest) - malicious - 1, 1)  # m - 2 c - 1
        size = (float(nearest.min()) / others + math.sqrt(norms.max())) / math.sqrt(sign.size)
        while size >= SMALLEST:
            away = norms + 2 * size * along + size * size * length
            alike = np.concatenate([np.zeros(malicious - 1), np.sort(away)])[:number]
            beside = np.hstack([distances, np.repeat(away[:, None], malicious, axis=1)])
            scores = np.sort(beside, axis=1)[:, 1 : number + 1].sum(axis=1)
            if alike.sum() < scores.min():
                break
            size /= 2
        return np.asarray(-size * sign)


Direction = Literal["unit_vec", "sign", "std"]


@dataclass(frozen=True)
class MinMax(Collusion):
    """mu - gamma p, no farther from any honest update than two of these are from each other.

    Source: Shejwalkar and Houmansadr 2021, section 4 (Min-Max, AGR-agnostic). gamma is the largest
    that holds.

    Attributes:
        direction: p: ``"unit_vec"`` is mu / ||mu||, ``"sign"`` its sign, ``"std"`` the standard
            deviation of each coordinate.
    """

    name = "min-max"

    direction: Direction = "unit_vec"

    requires = NEEDS

    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        most = float(_squared_distances(honest).max())
        mean, p = _mean(honest), _direction(honest, self.direction)
        # ||mu - gamma p - x||^2 <= most for each x is a quadratic inequality in gamma.
        roots = [_root(p, mean - one, most) for one in honest]
        return np.asarray(mean - max(min(roots), 0.0) * p)


@dataclass(frozen=True)
class MinSum(Collusion):
    """mu - gamma p, whose sum of squared distances is no larger than that of any honest update.

    Source: Shejwalkar and Houmansadr 2021, section 4 (Min-Sum, AGR-agnostic). gamma is the largest
    that holds; the bound is the least of the sums, as in the authors' code.

    Attributes:
        direction: p, as in `min-max`.
    """

    name = "min-sum"

    direction: Direction = "unit_vec"

    requires = NEEDS

    def collude(self, honest: np.ndarray, malicious: int, rng: np.random.Generator) -> np.ndarray:
        most = float(_squared_distances(honest).sum(axis=1).min())
        mean, p = _mean(honest), _direction(honest, self.direction)
        # The sum is that of the squared distances from the mean, plus h ||gamma p||^2.
        spread = sum(_square(mean - one) for one in honest)
        size = len(honest) * _square(p)
        gamma = math.sqrt(max(most - spread, 0.0) / size) if size else 0.0
        return np.asarray(mean - gamma * p)


def _mean(honest: np.ndarray) -> np.ndarray:
    mean = np.zeros(honest.shape[1])
    for one in honest:
        mean += one
    return mean / len(honest)


def _deviation(honest: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each coordinate, with h - 1 degrees of freedom."""
    mean, squares = _mean(honest), np.zeros(honest.shape[1])
    for one in honest:
        squares += (one - mean) ** 2
    return np.asarray(np.sqrt(squares / max(len(honest) - 1, 1)))


def _direction(honest: np.ndarray, kind: Direction) -> np.ndarray:
    mean = _mean(honest)
    if kind == "sign":
        return np.asarray(np.sign(mean))
    if kind == "std":
        return _deviation(honest)
    length = math.sqrt(_square(mean))
    return mean / length if length else mean


def _square(vector: np.ndarray) -> float:
    return total(vector * vector)


def _squared_distances(honest: np.ndarray) -> np.ndarray:
    """Return float64 (h, h): the squared distance of each two honest updates."""
    distances = np.zeros((len(honest), len(honest)))
    for i, one in enumerate(honest):
        for j in range(i):
            distances[i, j] = distances[j, i] = _square(one - honest[j])
    return distances


def _root(p: np.ndarray, away: np.ndarray, most: float) -> float:
    """Return the largest gamma with ||away - gamma p||^2 <= most."""
    a, b, c = _square(p), -2 * total(p * away), _square(away) - most
    if not a:
        return 0.0
    return (-b + math.sqrt(max(b * b - 4 * a * c, 0.0))) / (2 * a)
