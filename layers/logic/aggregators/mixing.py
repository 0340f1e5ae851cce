"""Rules before a rule: updates are mixed, and another rule aggregates the mixtures.

Where clients differ, an honest client can look like a liar. Mixtures of several clients differ
less, so that the other rule can tell the two apart.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from layers.logic.aggregators.krum import squared_distances
from layers.logic.aggregators.mean import add_scaled
from layers.logic.aggregators.median import Median
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Need
from layers.logic.core.hook import ServerContext
from layers.logic.core.messages import Update
from layers.logic.core.parts import Parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.storage import Vector
from layers.settings import Count, WholeNumber

MEDIAN = Median()


@dataclass
class _Held:
    """The fold: all contributions, and the context that the other rule begins with."""

    context: ServerContext
    contributions: list[Contribution] = field(default_factory=list)


class Mixing(Aggregator):
    """A rule that makes mixtures of the updates, which another rule aggregates.

    It is a frozen dataclass with the setting `rule`. All updates and mixtures are held in memory.

    Attributes:
        mixes_buffers: whether buffers are mixed as updates are; if not, the mixture at a place has
            the buffers of the update at this place.
    """

    rule: Aggregator
    mixes_buffers: ClassVar[bool] = True

    requires = frozenset({Need.EACH_CLIENT})

    @abstractmethod
    def mixtures(self, deltas: Sequence[Vector], context: ServerContext) -> list[list[int]]:
        """Return, for each mixture, the places of its updates; the mixture is their plain mean.

        Args:
            deltas: float32 (d,) each, in the order of the plan.
            context: of the round, for draws.
        """

    def check(self, logic: Parts) -> None:
        """Check that the other rule uses nothing of an update but its vectors.

        Raises:
            LogicError: it uses more.
        """
        losses = {Need.RMS_LOSS, Need.RECEIVED_LOSS, Need.ASKED_LOSS}
        more = self.rule.requires & {Need.STEPS, *losses}
        for need in sorted(more, key=lambda one: one.name):
            raise LogicError(
                f"{type(self.rule).__name__} {need.value}, and a mixture of updates in "
                f"{type(self).__name__} has none; use a rule of the updates alone, such as median"
            )

    def inspect(self, update: Update) -> None:
        """Check an update as the other rule does."""
        self.rule.inspect(update)

    def start(self, state: ServerState, group: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the start that the other rule gives to a group."""
        return self.rule.start(state, group)

    def begin(self, state: ServerState, context: ServerContext) -> _Held:
        return _Held(context)

    def add(self, total: _Held, contribution: Contribution) -> _Held:
        # A view of the message, however small, would keep all of its memory.
        kept = replace(contribution, buffers=contribution.buffers.copy(), updates=())
        total.contributions.append(kept)
        return total

    def finish(self, total: _Held, state: ServerState) -> ServerState:
        """Return the state of the other rule; a mixture's share is divided among its updates."""
        given = total.contributions
        deltas, buffers = [one.delta for one in given], [one.buffers for one in given]
        mixtures = self.mixtures(deltas, total.context)
        inner: Any = self.rule.begin(state, total.context)
        for place, mixture in enumerate(mixtures):
            mixed = replace(
                given[mixture[0]],
                lane=place,
                samples=sum(given[one].samples for one in mixture),
                delta=_mean([deltas[one] for one in mixture]),
                buffers=_mean([buffers[one] for one in mixture])
                if self.mixes_buffers
                else buffers[place],
            )
            inner = self.rule.add(inner, mixed)
        after = self.rule.finish(inner, state)
        if not after.shares.size:
            return after
        shares = np.zeros(len(given))
        for share, mixture in zip(after.shares, mixtures, strict=True):
            shares[mixture] += share / len(mixture)
        return replace(after, shares=shares)


@dataclass(frozen=True)
class Bucketing(Mixing):
    """Another rule, on the means of random buckets of updates (Karimireddy et al. 2022, alg. 1).

    The updates of a round are put into a random order, and each `size` that follow one another are
    a bucket; the last one may be smaller. A liar spoils one bucket at most, so the other rule must
    hold against as many spoilt buckets as there are liars.

    Attributes:
        size: s, how many updates a bucket has.
        rule: aggregates the buckets.
    """

    name = "bucketing"

    size: Count = 2
    rule: Aggregator = MEDIAN

    @property
    def least_updates(self) -> int:
        """The fewest that make as many buckets as the other rule needs."""
        least = self.rule.least_updates
        return self.size * (least - 1) + 1 if least else 0

    def mixtures(self, deltas: Sequence[Vector], context: ServerContext) -> list[list[int]]:
        order = context.rng("buckets").permutation(len(deltas)).tolist()
        return [order[start : start + self.size] for start in range(0, len(order), self.size)]


@dataclass(frozen=True)
class NearestNeighbourMixing(Mixing):
    """Another rule, on the mean of each update and its neighbours (Allouah et al. 2023, NNM).

    Each of the m updates is replaced by the mean of the m - f nearest to it, itself included.
    Buffers stay as they are, since the client of a near update may send any buffers beside it.

    Attributes:
        byzantine: f, how many clients of a round may be arbitrary; `logic.min_updates` must be
            2 f + 1 or more.
        rule: aggregates the mixtures.
    """

    name = "nearest-neighbour-mixing"
    mixes_buffers = False

    byzantine: WholeNumber = 1
    rule: Aggregator = MEDIAN

    @property
    def least_updates(self) -> int:
        """2 f + 1, or the number that the other rule needs."""
        return max(2 * self.byzantine + 1, self.rule.least_updates)

    def mixtures(self, deltas: Sequence[Vector], context: ServerContext) -> list[list[int]]:
        """Return each update with its nearest neighbours; of equally near ones, the first."""
        distances = squared_distances(deltas)
        np.fill_diagonal(distances, -1.0)  # it is a neighbour of its own, whoever equals it
        number = len(deltas) - self.byzantine
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :number]
        return [sorted(places) for places in nearest.tolist()]


def _mean(vectors: Sequence[Vector]) -> np.ndarray:
    """Return the plain mean of vectors (n,), in their own type."""
    mean = np.zeros(vectors[0].size)
    for vector in vectors:
        add_scaled(mean, vector, 1.0)
    mean /= len(vectors)
    return mean.astype(vectors[0].dtype)
