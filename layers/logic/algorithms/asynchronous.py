"""Asynchronous rounds: FedBuff (Nguyen et al. 2022, algorithm 1) and FedAsync (Xie et al. 2019).

C clients train at the same time. When one returns or is lost, another one starts at once from the
model of that moment. After K updates the server makes a new version of the model, with which a new
round begins; the other clients continue. The staleness tau of an update is the number of versions
that the server has made since it sent the task; 0 is fresh. An update is weighed by s(tau) (Xie et
al. 2019, section 5.2):

    constant      s = 1
    polynomial    s = (1 + tau)^-a
    hinge         s = 1 for tau <= b, else 1 / (a (tau - b) + 1)

    FedBuff       w <- w + eta m,  m <- beta m + (1/K) sum_k s(tau_k) delta_k
    FedAsync      w <- (1 - alpha s) w + alpha s (w_tau + delta),  where K = 1

Xie et al. count the step that is about to be made, so that a fresh update has tau 1 there; here it
has tau 0 and the full weight in both algorithms, as in Nguyen et al. Error feedback of a client's
codec needs no change: its residual belongs to the client's own updates, whatever model they started
from (Stich and Karimireddy 2020, delayed gradients with error feedback).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from layers.logic.aggregators.mean import BufferMean, WeightedMean, stepped
from layers.logic.core.aggregator import Aggregator, Contribution
from layers.logic.core.declaration import Trait
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import Selector
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.selectors.draws import draw_uniform
from layers.settings import Count, NotNegative, PositiveShare, WholeNumber


@dataclass(frozen=True)
class Concurrent(Selector):
    """Keeps `concurrency` clients training, drawn uniformly among those without a task.

    Source: Nguyen et al. 2022, algorithm 1. With `refill_at` R, it waits until R places are open,
    and fills them together, as NVFlare does. All updates of one virtual instant are folded before
    places are filled.

    Attributes:
        concurrency: clients that train at the same time.
        buffer: K, the number of accepted updates after which a new version begins.
        refill_at: R, the number of open places that are filled together.
    """

    name = "concurrent"

    concurrency: Count = 10
    buffer: Count = 5
    refill_at: Count = 1

    provides = frozenset({Trait.ASYNCHRONOUS})

    def __post_init__(self) -> None:
        if self.refill_at > self.concurrency:
            raise LogicError(
                f"refill_at {self.refill_at} places are never open with concurrency "
                f"{self.concurrency}; lower refill_at"
            )

    @property
    def tasks_per_round(self) -> int:
        """K updates that count, and one too stale to count for each of those in flight."""
        return self.buffer + self.concurrency

    def run(self, round: OpenRound) -> Run[None]:
        while (yield from round.until_changed(accepted=self.buffer)):  # until K are in the buffer
            for client in self.draw(round):  # C clients train at the same time
                round.train(client)

    def draw(self, round: OpenRound) -> list[int]:
        """Draw a client for each open place, if as many as `refill_at` are open."""
        busy, ids = np.sort(np.fromiter(round.in_flight, np.int64)), round.sizes.ids
        places = self.concurrency - busy.size
        if places < (self.refill_at if busy.size else 1):
            return []
        at = np.searchsorted(ids, busy)
        at = at[np.take(ids, at, mode="clip") == busy]  # others have left
        idle = ids.size - at.size
        drawn = draw_uniform(round.rng, idle, min(places, idle))  # places among the idle clients
        before = at - np.arange(at.size)  # idle clients before each busy one
        skipped = np.searchsorted(before, drawn, side="right")
        chosen: list[int] = np.sort(ids[drawn + skipped]).tolist()
        return chosen


StalenessKind = Literal["constant", "polynomial", "hinge"]


def staleness_weight(kind: str, tau: int, a: float, b: float) -> float:
    """Return s(tau) (Xie et al. 2019, section 5.2).

    Args:
        kind: constant, polynomial or hinge.
        tau: the staleness, 0 or more.
        a: exponent of polynomial, or slope of hinge.
        b: staleness up to which hinge is 1.
    """
    if kind == "constant":
        return 1.0
    if kind == "polynomial":
        return float((1 + tau) ** -a)
    return 1.0 if tau <= b else 1.0 / (a * (tau - b) + 1)


@dataclass(frozen=True)
class _ByStaleness:
    """What FedBuff and FedAsync share: s(tau), and the largest tau.

    Attributes:
        staleness: s, one of constant, polynomial and hinge.
        a: exponent of polynomial, or slope of hinge.
        b: staleness up to which hinge is 1.
        staleness_limit: the largest staleness; an update above it is rejected; None: any.
    """

    staleness: StalenessKind = "polynomial"
    a: NotNegative = 0.5
    b: NotNegative = 4.0
    staleness_limit: WholeNumber | None = None

    @property
    def most_staleness(self) -> int | None:
        """`staleness_limit`."""
        return self.staleness_limit

    def factor(self, total: Any, contribution: Contribution) -> float:
        """Return s(tau) of a contribution."""
        return staleness_weight(self.staleness, contribution.staleness, self.a, self.b)


@dataclass(frozen=True)
class FedBuff(_ByStaleness, WeightedMean):
    """w + (1/K) sum_k s(tau_k) delta_k over the K updates of a version.

    Source: Nguyen et al. 2022, algorithm 1. All clients have the same weight, whatever their
    numbers of samples. Buffers (running statistics) are averaged by samples.
    """

    name = "fedbuff"

    provides = frozenset({Trait.BY_SLICES})


@dataclass
class _Mixture:
    model: np.ndarray
    buffers: BufferMean


@dataclass(frozen=True)
class FedAsync(_ByStaleness, Aggregator):
    """(1 - alpha s(tau)) w + alpha s(tau) w_k, where w_k is the client's model.

    Source: Xie et al. 2019, algorithm 1 and section 5.2. Several updates of one version are mixed
    one after the other, in the order of their tasks. Buffers (running statistics) are averaged by
    samples.

    Attributes:
        alpha: the mixing weight of a fresh update, above 0 and at most 1.
    """

    name = "fedasync"

    alpha: PositiveShare = 0.6

    def init(self, state: ServerState) -> _Mixture:
        return _Mixture(state.weights.astype(np.float64), BufferMean(state))

    def add(self, total: _Mixture, contribution: Contribution) -> _Mixture:
        mixed = self.alpha * self.factor(total, contribution)
        client = contribution.start.astype(np.float64) + np.asarray(contribution.delta)
        total.model += mixed * (client - total.model)
        total.buffers.add(contribution)
        return total

    def finish(self, total: _Mixture, state: ServerState) -> ServerState:
        return stepped(state, total.model - state.weights, total.buffers.mean())


@settings_of_parts()
def fedbuff() -> Preset:
    """FedBuff (Nguyen et al. 2022): buffered asynchronous aggregation.

    A new version of the model begins after `buffer` updates, each weighed by its staleness; the
    server's optimiser is SGD with momentum.
    """
    return Preset(Concurrent(), FedBuff(), (FedAvgM(momentum=0.0),))


@settings_of_parts(fixed={"buffer": "each update makes a version"})
def fedasync() -> Preset:
    """FedAsync (Xie et al. 2019): each update is mixed into the model, weighed by its staleness."""
    return Preset(Concurrent(buffer=1), FedAsync())
