"""Fair averaging by loss (q-FedAvg: Li, Sanjabi, Beirami, Smith 2020, algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from layers.logic.aggregators.mean import WeightedMean, WeightedSum, add_scaled
from layers.logic.core.aggregator import Contribution
from layers.logic.core.declaration import Need, Trait
from layers.logic.core.messages import Update
from layers.logic.errors import Rejected
from layers.logic.numeric.vectors import norm
from layers.settings import NotNegative

LEAST_LOSS = 1e-10  # added to every loss, so that its power q - 1 is defined


class _Scaled(WeightedSum):
    """Both sums divided by exp(scale), so that no power overflows."""

    scale = -math.inf


@dataclass(frozen=True)
class QFedAvg(WeightedMean):
    """w - sum_k D_k / sum_k h_k, with D_k = F_k^q L (w - w_k) and L = 1 / eta.

    h_k = q F_k^(q-1) ||L (w - w_k)||^2 + L F_k^q; F_k is the received model's mean loss on client
    k's samples, which clients report with their updates; eta is the learning rate of the round.
    D_k and h_k are computed on the server, so that an update is as large as FedAvg's. All clients
    have the same weight, whatever their numbers of samples. Memory is that of one update and the
    sum.

    Attributes:
        q: how much more a high loss counts; 0 is the plain mean of the clients' models.
    """

    name = "q-fedavg"

    q: NotNegative = 1.0

    fold = _Scaled
    requires = frozenset({Need.RECEIVED_LOSS, Need.EACH_CLIENT, Need.ONE_VERSION, Need.SGD})
    provides = frozenset({Trait.BY_SLICES})

    def inspect(self, update: Update) -> None:
        check_loss(update)

    def add(self, total: _Scaled, contribution: Contribution) -> _Scaled:
        """Add D_k and h_k, both divided by L."""
        (update,) = contribution.updates
        loss = float(update.metrics["loss"]) + LEAST_LOSS
        exponent = self.q * math.log(loss)
        if exponent > total.scale:
            shrink = math.exp(total.scale - exponent)
            total.delta *= shrink
            total.weight *= shrink
            total.scale = exponent
        power = math.exp(exponent - total.scale)
        add_scaled(total.delta, contribution.delta, power)
        length = norm(contribution.delta)
        lipschitz = 1 / contribution.training.learning_rate
        total.weight += power * (1 + self.q * lipschitz * (length * length) / loss)
        total.buffers.add(contribution)
        return total


def check_loss(update: Update) -> None:
    """Raise `Rejected` for an update without the received model's loss, or with a negative one."""
    loss = update.metrics.get("loss")
    if loss is None or loss < 0:
        raise Rejected(f"a loss of {loss}; the aggregator needs the received model's, 0 or more")
