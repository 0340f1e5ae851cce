"""DP-FTRL: central privacy without sampling, for clients that take part in turn.

Source: Kairouz et al. 2021, "Practical and private (deep) learning without sampling or shuffling",
algorithm 1, for federated averaging.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from layers.logic.core.preset import Preset
from layers.logic.core.privacy import Budget, DifferentialPrivacy, Mechanism, Seen
from layers.logic.privacy.central import (
    ClipUpdates,
    Noise,
    PrivateMean,
    check_bounded,
    check_delta,
    seen_of,
    selector_in,
    with_hook,
    with_noise_in_mean,
)
from layers.logic.privacy.tree import NoiseTree, TreeMechanism
from layers.logic.selectors.cyclic import Cyclic
from layers.settings import Count, Fraction, Positive


@dataclass(frozen=True)
class DpFtrl(DifferentialPrivacy):
    """DP-FTRL: noise that follows a tree over the rounds, so that no secret sampling is needed.

    w_t = w_0 + R / N (sum of the clipped updates of rounds 1 to t, with the noise of the nodes of a
    binary tree), where clients take part in one round of R. The noise on this sum grows with log t,
    while independent noise in each round would add up to t times as much variance. A client with
    one part in a tree is in log2 t + 1 nodes at most, each with noise of sigma C.

    The unit of privacy is a client with all its samples: two runs are neighbours if one client
    sends nothing in one of them. Everybody may know who takes part when. It needs the selector
    `cyclic`, a mean with equal weights, and `min_updates: 0`.

    Attributes:
        clip: C, the largest norm of an update that counts in full.
        delta: the probability up to which the claim may fail; below 1 / N.
        epsilon: the budget. The run ends before a round would exceed it. null: what is spent is
            only reported.
        noise: sigma of each node, as a multiple of C; null: the least that keeps the budget of all
            rounds.
        restart: the rounds of a tree, after which a new one begins; best a power of two. With more
            trees noise of a given sigma costs less, and more of it adds up. null: one tree.
        honaker: whether the estimate also uses the nodes below those of the sum (Honaker 2015): the
            same privacy with less noise.
    """

    name = "dp-ftrl"

    clip: Positive
    delta: Fraction
    epsilon: Positive | None = None
    noise: Noise | None = None
    restart: Count | None = None
    honaker: bool = True

    def __post_init__(self) -> None:
        check_bounded(self.epsilon, self.noise)

    @property
    def budget(self) -> Budget:
        return Budget(self.delta, self.epsilon)

    def applied(self, preset: Preset, clients: int) -> Preset:
        check_delta(self.delta, clients)
        given = with_hook(preset, ClipUpdates(self.clip, sampled=False))
        share = 1 / selector_in(preset, Cyclic).period
        tree = NoiseTree(self.restart, self.honaker)
        mean = PrivateMean(self.clip, self.noise, share, clients, tree=tree)
        return replace(given, aggregator=mean)

    def mechanism(self, preset: Preset) -> Mechanism:
        """Return the noise, and how often a client is in a node."""
        assert isinstance(preset.aggregator, PrivateMean)
        period = selector_in(preset, Cyclic).period
        return TreeMechanism(preset.aggregator.noise, 1.0, period, self.restart)

    @property
    def seen(self) -> Seen:
        return seen_of(self.budget)

    def with_noise(self, preset: Preset, noise: float) -> Preset:
        return with_noise_in_mean(preset, noise)
