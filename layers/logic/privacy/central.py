"""Central differential privacy for clients: clipped updates, Poisson sampling, Gaussian noise.

Source: McMahan et al. 2018, "Learning differentially private recurrent language models",
algorithm 1, with the fixed denominator q N. The noise is that of Kairouz, Liu and Steinke 2021:
updates are rounded to a grid, and the sum gets discrete Gaussian noise of the server's secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np
from annotated_types import Ge

from layers.logic.aggregators.mean import stepped
from layers.logic.core.aggregator import AGGREGATE, Aggregator, Contribution
from layers.logic.core.declaration import RULES, Need, Trait, check_together
from layers.logic.core.hook import ClientContext, ClientSide, Hook, ServerContext, ServerSide
from layers.logic.core.messages import Task, Update
from layers.logic.core.parts import Parts
from layers.logic.core.preset import Preset
from layers.logic.core.privacy import Budget, DifferentialPrivacy, Mechanism, Seen
from layers.logic.core.selector import Selector
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.logic.numeric.discrete_gaussian import discrete_gaussian
from layers.logic.numeric.vectors import norm
from layers.logic.privacy.adaptive_clip import AdaptiveClip
from layers.logic.privacy.tree import NoiseTree, prefix
from layers.logic.selectors.cyclic import Cyclic
from layers.logic.selectors.poisson import Poisson
from layers.logic.storage import Vector
from layers.settings import FINITE, Fraction, Positive, Share

GRID = 1 << 24
"""The steps of the grid in one standard deviation of the noise."""

CLIP = "clip"
"""The name of the clip in the mean's memory, and in the slot of a task."""
WITHIN = "within the clip"
"""The name of a client's bit in the slot of its update."""

Noise = Annotated[float, Ge(0.01), FINITE]
"""As a multiple of the clip. With less, squares of whole numbers could overflow."""


@dataclass(frozen=True)
class Central(DifferentialPrivacy):
    """Central DP: the server adds Gaussian noise to the sum of clipped updates.

    w <- w + (sum_k min(1, C / ||delta_k||) delta_k + sigma C z) / (q N), over the clients that
    Poisson sampling draws with probability q; z is standard normal. The unit of privacy is a client
    with all its samples: two runs are neighbours if one has a client more. Whoever sees the models
    learns at most (epsilon, delta) about any client; the server itself is trusted.

    It needs the selector `poisson`, a mean with equal weights, and `min_updates: 0`. Clients clip
    before anything is encoded, and send no loss; the server clips again.

    Attributes:
        clip: C, the largest norm of an update that counts in full.
        delta: the probability up to which the claim may fail; below 1 / N.
        epsilon: the budget. The run ends before a round would exceed it. null: what is spent is
            only reported.
        noise: sigma, as a multiple of C; null: the least that keeps the budget of all rounds.
        quantile: the share of updates that should not be clipped; C then begins at `clip` and
            follows the norms (Andrew et al. 2021). null: C stays.
        clip_rate: of the steps of C.
        bit_noise: sigma_b, the deviation of the noise on the sum of the clients' bits, above half
            of `noise`; null: q N / 20. The noise on the updates is so much larger that both
            together cost what `noise` says.
    """

    name = "central"

    clip: Positive
    delta: Fraction
    epsilon: Positive | None = None
    noise: Noise | None = None
    quantile: Share | None = None
    clip_rate: Positive = 0.2
    bit_noise: Positive | None = None

    def __post_init__(self) -> None:
        check_bounded(self.epsilon, self.noise)

    @property
    def budget(self) -> Budget:
        return Budget(self.delta, self.epsilon)

    def applied(self, preset: Preset, clients: int) -> Preset:
        check_delta(self.delta, clients)
        clipping = ClipUpdates(self.clip, self.quantile is not None)
        given = with_hook(preset, clipping)
        probability = selector_in(preset, Poisson).probability
        adaptive = None
        if self.quantile is not None:
            m = probability * clients
            bit_noise = m / 20 if self.bit_noise is None else self.bit_noise
            adaptive = AdaptiveClip(self.quantile, self.clip_rate, bit_noise, m)
        mean = PrivateMean(self.clip, self.noise, probability, clients, adaptive)
        return replace(given, aggregator=mean)

    def mechanism(self, preset: Preset) -> Mechanism:
        assert isinstance(preset.aggregator, PrivateMean)
        return Mechanism(preset.aggregator.noise, preset.aggregator.probability)

    @property
    def seen(self) -> Seen:
        """The noisy sums; that nobody knows who takes part is a part of the claim."""
        return seen_of(self.budget, f"{Seen.traffic}, whose secrecy epsilon counts on")

    def with_noise(self, preset: Preset, noise: float) -> Preset:
        return with_noise_in_mean(preset, noise)


def seen_of(budget: Budget, traffic: str = Seen.traffic) -> Seen:
    """Return what others see where a trusted server adds the noise."""
    told = "the recorded epsilon" if budget.epsilon is None else f"at most epsilon {budget.epsilon}"
    return Seen(
        "each client's update, clipped, and its number of samples, and is trusted",
        f"the models, which tell {told} (delta {budget.delta}) about any client",
        traffic,
    )


def check_bounded(epsilon: float | None, noise: float | None) -> None:
    """Raise `LogicError` if neither epsilon nor noise is given."""
    if epsilon is None and noise is None:
        raise LogicError("privacy needs epsilon or noise; set one of them")


def check_delta(delta: float, clients: int) -> None:
    """Raise `LogicError` unless delta is below 1 / N."""
    if delta * clients >= 1:
        raise LogicError(
            f"delta must be below 1 / {clients} clients, not {delta:g}: with more, a run "
            "that publishes one client's data would keep the claim"
        )


def with_hook(preset: Preset, hook: Hook) -> Preset:
    """Return the parts with a hook after all others.

    Raises:
        LogicError: a part breaks what the hook requires.
    """
    given = replace(preset, hooks=(*preset.hooks, hook))
    beside: Any = given
    check_together(beside, {}, [rule for rule in RULES if rule.one in hook.requires])
    hook.check(beside)
    return given


S = TypeVar("S", bound=Selector)


_UNLIKE: dict[type[Selector], str] = {
    Poisson: "chooses clients by their data, by their answers or in a fixed number, and the "
    "epsilon of privacy counts on draws that no client changes for another; use the selector "
    "poisson, or privacy dp-ftrl, which needs no draws, or let it inherit from Poisson",
    Cyclic: "does not fix in which rounds each client takes part, and the epsilon of privacy "
    "without sampling counts on how many rounds lie between them; use the selector cyclic, or let "
    "it inherit from Cyclic",
}
"""Why the account of epsilon needs a selector of a class, said of one of another class."""


def selector_in(logic: Preset | Parts, wanted: type[S]) -> S:
    """Return the selector, whose draws and settings the account needs.

    Raises:
        LogicError: it is of another class.
    """
    if isinstance(logic.selector, wanted):
        return logic.selector
    raise LogicError(f"{type(logic.selector).__name__} {_UNLIKE[wanted]}")


def with_noise_in_mean(preset: Preset, noise: float) -> Preset:
    """Return the parts with this noise in the private mean."""
    assert isinstance(preset.aggregator, PrivateMean)
    return replace(preset, aggregator=replace(preset.aggregator, noise=noise))


@dataclass(frozen=True)
class ClipUpdates(Hook):
    """Each client scales its update down to norm C, and sends no metric.

    Attributes:
        clip: C, in round 1.
        adaptive: whether the server tells C, and each client whether its update is no longer.
        sampled: whether epsilon counts on secret draws, or on a schedule that everybody may know.
    """

    clip: float
    adaptive: bool = False
    sampled: bool = True

    requires = frozenset({Need.BOUNDED})

    def check(self, logic: Parts) -> None:
        """Check that the selector draws clients as the account of epsilon assumes."""
        selector_in(logic, Poisson if self.sampled else Cyclic)

    class Server(ServerSide["ClipUpdates"]):
        def send(self, task: Task, context: ServerContext) -> Task:
            if self.hook.adaptive:
                context.slot[CLIP] = context.aggregate.get(CLIP, self.hook.clip)
            return task

        def conclude(self, state: ServerState, context: ServerContext) -> ServerState:
            if self.hook.adaptive:
                context.record(clip=state.memory.get(AGGREGATE, {}).get(CLIP, self.hook.clip))
            return state

    class Client(ClientSide["ClipUpdates"]):
        def __init__(self, hook: ClipUpdates) -> None:
            super().__init__(hook)
            self._clip = hook.clip

        def receive(self, task: Task, context: ClientContext) -> Task:
            if self.hook.adaptive:
                self._clip = float(context.slot[CLIP])  # type: ignore[arg-type]
            return task

        def send(self, update: Update, context: ClientContext) -> Update:
            delta, length = update.delta, norm(update.delta)
            if self.hook.adaptive:
                context.slot[WITHIN] = length <= self._clip
            if length > self._clip:
                delta = delta * np.float32(self._clip / length)
            return replace(update, delta=delta, metrics={})


@dataclass
class _Sum:
    clip: float  # C of this round
    step: float  # the width of the grid
    whole: np.ndarray  # int64 (d,), in steps of the grid
    context: ServerContext
    bits: int = 0  # of clients within the clip, less those beyond it


@dataclass(frozen=True)
class PrivateMean(Aggregator):
    """w + (the sum of clipped updates, with noise) / (q N), all on a grid; see `Central`.

    Whatever a client sent, what counts of it has a norm of C at most. Sums are exact. Buffers do
    not change.

    Attributes:
        clip: C.
        noise: sigma; None: only the server knows it.
        probability: q, the share of the clients that is expected in a round.
        clients: N.
        adaptive: how C follows the norms; None: it stays.
        tree: how noise goes on from round to round; None: that of each round is its own.
    """

    clip: float
    noise: float | None
    probability: float
    clients: int
    adaptive: AdaptiveClip | None = None
    tree: NoiseTree | None = None

    requires = frozenset({Need.EACH_CLIENT, Need.ONE_VERSION})
    provides = frozenset({Trait.BY_SLICES, Trait.EQUAL_WEIGHTS, Trait.OTHER_WEIGHTS})
    counts_empty = True

    def check(self, logic: Parts) -> None:
        """Check that a round of any number of updates counts, and that N is that of the logic."""
        if logic.min_updates:
            raise LogicError(
                f"min_updates is {logic.min_updates}, but with privacy every round counts, and an "
                "empty one, too: whether it failed would tell who took part; set "
                "logic.min_updates to 0"
            )
        if logic.clients is not None and logic.clients != self.clients:
            raise LogicError(f"a private mean of {self.clients} clients beside {logic.clients}")
        if self.adaptive is not None and self.noise is not None:
            self.adaptive.noise_of_update(self.noise)

    def step_at(self, clip: float) -> float:
        """Return the width of the grid: a part of the standard deviation of the noise."""
        if self.noise is None:
            raise LogicError("the noise of this mean is not known here; only the server folds")
        noise = self.noise
        return (
            clip * (noise if self.adaptive is None else self.adaptive.noise_of_update(noise)) / GRID
        )

    def begin(self, state: ServerState, context: ServerContext) -> _Sum:
        if state.buffers.size:
            raise LogicError(
                "the model has buffers (BatchNorm), which clients would send without clipping and "
                "noise; use a model without them, such as one with GroupNorm"
            )
        clip = float(state.memory.get(AGGREGATE, {}).get(CLIP, self.clip))
        return _Sum(clip, self.step_at(clip), np.zeros(state.weights.size, np.int64), context)

    def add(self, total: _Sum, contribution: Contribution) -> _Sum:
        total.whole += on_grid(contribution.delta, total.clip, total.step)
        if self.adaptive is not None:
            slots = contribution.updates[0].slots.values()
            told = [one[WITHIN] for one in slots if WITHIN in one]
            total.bits += (1 if told[0] is True else -1) if told else 0
        return total

    def finish(self, total: _Sum, state: ServerState) -> ServerState:
        scale = total.step / (self.probability * self.clients)
        if self.tree is not None:
            nodes = self.tree.nodes_after(state.round, state.memory.get(AGGREGATE, {}), total.step)
            after = self.tree.with_round(nodes, total.whole, partial(_noise, total))
            delta = (prefix(after) - prefix(nodes)) * scale
            kept = {**state.memory, AGGREGATE: {"nodes": after, "step": total.step}}
            return replace(stepped(state, delta, state.buffers), memory=kept)
        covered = (total.whole, np.array([total.bits]))
        noisy = total.whole + _noise(total, *covered)()
        moved = stepped(state, noisy * scale, state.buffers)
        if self.adaptive is None:
            return moved
        # In steps of a grid, too: a bit counts for half, rounded towards zero.
        step = self.adaptive.bit_noise / GRID
        draws = total.context.secret("bits", *covered)
        noise = int(discrete_gaussian(draws, GRID, 1)[0])
        bits = (total.bits * math.floor(0.5 / step) + noise) * step
        clip = self.adaptive.next(total.clip, self.clip, bits)
        return replace(moved, memory={**state.memory, AGGREGATE: {CLIP: clip}})


def _noise(total: _Sum, *covered: np.ndarray) -> Callable[[], np.ndarray]:
    """Return what draws the noise of one value after the other, int64 (d,), in steps of the grid.

    Args:
        total: the sum of the round.
        covered: the values that the noise hides; others get other noise.
    """
    draws = total.context.secret("noise", *covered)
    return lambda: discrete_gaussian(draws, GRID, total.whole.size)


def on_grid(delta: Vector, clip: float, step: float) -> np.ndarray:
    """Return an update in steps of a grid, int64 (d,), with a norm of `clip` at most.

    Values are rounded towards zero, which lengthens no vector; the squares are summed exactly.

    Args:
        delta: float32 (d,), finite.
        clip: C.
        step: the width of the grid.
    """
    values = np.asarray(delta, np.float64)
    length = norm(delta)
    factor = min(1.0, clip / length) / step if length else 0.0
    most = math.floor((clip / step) ** 2)
    while True:
        whole: np.ndarray = np.trunc(values * factor).astype(np.int64)
        if int(np.add.reduce(whole * whole)) <= most:
            return whole
        factor *= 1 - 2.0**-40
