"""Oort (Lai et al. 2021, algorithm 1): clients are selected by utility, some new ones at random.

The scaling of rewards, the candidates and the pacer follow the authors' code (FedScale,
thirdparty/oort).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le

from layers.arithmetic import power, sum_in_order, total
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.fedcs import TIMES, ReportedTimes
from layers.logic.core.declaration import Need
from layers.logic.core.preset import Preset, settings_of_parts
from layers.logic.core.round import OpenRound, Run
from layers.logic.core.selector import column, with_numbers
from layers.logic.core.survey import Question
from layers.logic.selectors.draws import draw_uniform, draw_weighted
from layers.logic.selectors.uniform import Draw
from layers.settings import FINITE, Count, NotNegative, PositiveShare, Share

if TYPE_CHECKING:
    from layers.logic.core.report import ClientReport, RoundReport


PERCENTILE, GAINED = "percentile", "gained"

LONGEST_S = 1e200  # no sum of two of them overflows

REWARD, ROUND, COUNT, TOOK, TOLD = "reward", "round", "count", "took_s", "told_s"

RMS_LOSS, LOSS = "rms_loss", "loss"

BELOW_LEAST = 0.999  # of the least reward, so that its client keeps some utility

LEAST_SPAN = 1e-4

LEAST_DURATION_S = 1e-4

FLAT = 0.1  # relative change of the gained utility that counts as no change

SHARP = 5.0  # likewise, from which it has changed sharply

NOTHING = 1e-4  # of a client, so that the mean of none is 0


@dataclass(frozen=True, eq=False)
class Standing:
    """The n clients to choose from in a round, with their statistics.

    Attributes:
        clients: int64 (n,), ascending; those that are barred are left out.
        tried: bool (n,), whether they were asked before.
        utility: float64 (n,), the utility of clients that were asked; NaN for the others.
        promise: float64 (n,), the weight of new clients in the draw; NaN for the others.
        scale: of the rewards.
        preferred_s: T.
        exploiting: how many are taken by utility.
        exploring: how many new ones are taken.
    """

    clients: np.ndarray
    tried: np.ndarray
    utility: np.ndarray
    promise: np.ndarray
    scale: Scale
    preferred_s: float
    exploiting: int
    exploring: int


@dataclass(frozen=True)
class Oort(Draw):
    """Oort, algorithm 1, with the scales and defaults of the authors' code (FedScale).

    A client's reward is n_k sqrt(mean of its samples' squared losses) when its update was accepted;
    the mean reward of the round when it was lost (or late), rejected or declined; n_k before it was
    ever asked. In round R, one that was last asked in round r_k and needs t_k seconds from its
    task to its update has the utility

        ((min(reward, clip) - min) / (max - min) + sqrt(0.1 ln R / r_k)) (T / t_k)^alpha,

    the last only where T < t_k; min and max are those of the rewards to choose from. T is a
    percentile of all known t_k, which the pacer moves. Of a cohort of m, floor(epsilon m) are new
    clients, drawn in proportion to n_k (T / t_k)^alpha among the best; the others are drawn in
    proportion to their utility among the best. Either fills up for the other. The first round is
    uniform.

    Of one that did not arrive, t_k is known to be at least the time that it was given: the longer
    of that and what was known before counts.

    Keeps each client's last reward, last round, number of rounds and seconds; the percentile, and
    the mean rewards of the last 2 `pacer_step` rounds.

    Attributes:
        alpha: penalty for clients slower than T; 0: time does not count, and clients are not asked.
        exploration: epsilon, the share of new clients in a cohort, in round 1.
        decay: factor of epsilon in each round.
        least_exploration: the lowest epsilon.
        cutoff: c, in (0, 1]: candidates have c times the utility of the next best, or more.
        candidates: at least this many times the number of clients drawn by utility are candidates;
            0: `cutoff` alone decides.
        new_candidates: at most this many times the number of new clients are candidates; 1 or more.
        clip: the quantile of the rewards to which higher rewards are reduced.
        percentile: T is this percentile of the known t_k, at first; 100: no client is too slow.
        pacer_delta: percentage points by which the pacer moves `percentile`; 0: it stays.
        pacer_step: number of rounds after which the pacer compares rewards.
        most_rounds: a client that was selected more often is left out; None: no limit.
        most_barred: the largest share of the clients that may be left out, those with the most
            rounds first.
        ask_times: whether each client says once, before its first round, how long it will take.
    """

    name = "oort"

    alpha: NotNegative = 2.0
    exploration: Share = 0.9
    decay: PositiveShare = 0.98
    least_exploration: Share = 0.3
    cutoff: PositiveShare = 0.05
    candidates: NotNegative = 10.0
    new_candidates: Annotated[float, Ge(1), FINITE] = 5.0
    clip: Share = 0.9
    percentile: Annotated[float, Gt(0), Le(100)] = 30.0
    pacer_delta: Annotated[float, Ge(0), Le(100)] = 5.0
    pacer_step: Count = 20
    most_rounds: Count | None = None
    most_barred: Share = 0.3
    ask_times: bool = True

    requires = frozenset({Need.RMS_LOSS})

    @property
    def asks(self) -> tuple[Question, ...]:
        """How long a client will take, if time counts."""
        return (Question(TIMES),) if self.ask_times and self.alpha else ()

    def run(self, round: OpenRound) -> Run[None]:
        """Keep the seconds that each client says, and of its answer that there was one; draw."""
        for question in self.asks:
            told = ReportedTimes.of((yield from round.ask(question, once=True)))
            seconds = np.minimum(told.train_s, LONGEST_S) + np.minimum(told.upload_s, LONGEST_S)
            said = dict(zip(told.clients.tolist(), seconds.tolist(), strict=True))
            round.memory = with_numbers(round.memory, TOLD, said)
            round.survey[TIMES] = {client: {} for client in round.survey[TIMES]}
        yield from super().run(round)

    def draw(self, round: OpenRound, number: int) -> list[int]:
        """Draw those of high utility, and some that are new."""
        clients = round.sizes.ids
        if COUNT not in round.memory or number >= clients.size:
            cohort = clients[draw_uniform(round.rng, clients.size, number)]
        else:
            standing = self.standing(round, number)
            cohort = standing.clients[self._draw(standing, round.rng)]
        drawn: list[int] = cohort.tolist()
        return drawn

    def standing(self, round: OpenRound, asked: int) -> Standing:
        """Return the candidates, and the utility of each, if so many are to be chosen."""
        memory, number = round.memory, round.number
        clients, sizes = round.sizes.ids, round.sizes.sizes.astype(np.float64)
        allowed = ~np.isin(clients, self._barred(clients, memory))
        if allowed.any():
            clients, sizes = clients[allowed], sizes[allowed]
        tried = column(memory, COUNT, clients, 0.0) > 0
        rewards = column(memory, REWARD, clients, np.nan)
        rewards = np.where(np.isnan(rewards), sizes, rewards)
        scale = Scale.of(rewards, self.clip)
        durations_s = known_s(memory, clients)
        preferred = preferred_s(
            known_s(memory, timed(memory)), memory.get(PERCENTILE, self.percentile)
        )
        utility = scale.scaled(rewards)
        utility[tried] += uncertainty(column(memory, ROUND, clients[tried], 1.0), number)
        utility = slowed(utility, durations_s, preferred, self.alpha)
        promise = slowed(sizes, durations_s, preferred, self.alpha)
        known, new = int(tried.sum()), int((~tried).sum())
        epsilon = max(self.exploration * self.decay ** (number - 1), self.least_exploration)
        exploiting = min(asked - int(asked * epsilon), known)
        exploring = min(new, asked - exploiting)
        return Standing(
            clients,
            tried,
            np.where(tried, utility, np.nan),
            np.where(tried, np.nan, promise),
            scale,
            preferred,
            min(known, asked - exploring),
            exploring,
        )

    def _draw(self, standing: Standing, rng: np.random.Generator) -> np.ndarray:
        """Return the places of the cohort among the clients to choose from."""
        chosen = []
        for places, values, number, pool in (
            (np.flatnonzero(standing.tried), standing.utility, standing.exploiting, self._best),
            (np.flatnonzero(~standing.tried), standing.promise, standing.exploring, self._newest),
        ):
            if number:
                places = places[pool(values[places], number)]
                chosen.append(places[draw_weighted(rng, values[places], number)])
        return np.concatenate(chosen)

    def _best(self, utility: np.ndarray, number: int) -> np.ndarray:
        return candidates_for(utility, number, self.cutoff, self.candidates)

    def _newest(self, promise: np.ndarray, number: int) -> np.ndarray:
        return best(promise, int(self.new_candidates * number))

    def _barred(self, there: np.ndarray, memory: Mapping[str, Any]) -> np.ndarray:
        """Return the clients that took part too often, int64 (k,)."""
        if self.most_rounds is None:
            return np.zeros(0, np.int64)
        known, times = memory[COUNT]["clients"], memory[COUNT]["numbers"]
        often = best(times, int((times > self.most_rounds).sum()))
        most = int(self.most_barred * np.union1d(known, there).size)
        return np.asarray(known[often][:most])

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Keep the outcome of every planned client, and update the pacer."""
        # The others were not in the plan, or sent a second update.
        planned = report.clients[: report.selected]
        learned = with_rewards(memory, planned, report.round)
        if self.alpha and not timeless(memory):
            learned = with_numbers(learned, TOOK, measured_s(memory, planned, report.took_s))
        clients = np.array([one.client for one in planned], np.int64)
        known = clients[column(memory, COUNT, clients, 0.0) > 0]
        exploited = column(learned, REWARD, known, 0.0)
        pacer = Pacer(self.pacer_step, self.pacer_delta)
        history = pacer.gained(memory.get(GAINED, np.zeros(0)), exploited)
        percentile = memory.get(PERCENTILE, self.percentile)
        percentile = pacer.percentile(percentile, history, report.round + 1)
        return {**learned, GAINED: history, PERCENTILE: percentile}


def with_rewards(
    memory: Mapping[str, Any], planned: Sequence[ClientReport], round: int
) -> dict[str, Any]:
    """Return the memory with the rewards of a round, for all clients that were asked.

    A client without an update gets the mean of the others' rewards. A round without updates leaves
    rewards as they were.

    Args:
        memory: what was known before the round.
        planned: the clients that were asked.
        round: from 1.
    """
    clients = np.array([one.client for one in planned], np.int64)
    counts = column(memory, COUNT, clients, 0.0) + 1
    rewards = {
        one.client: one.samples * loss
        for one in planned
        if one.status == "accepted" and (loss := _loss(one)) is not None
    }
    if rewards:
        mean = sum_in_order(rewards.values()) / len(rewards)
        rewards = {one.client: rewards.get(one.client, mean) for one in planned}
    learned = with_numbers(memory, REWARD, rewards)
    learned = with_numbers(learned, ROUND, {one.client: float(round) for one in planned})
    return with_numbers(learned, COUNT, dict(zip(clients.tolist(), counts.tolist(), strict=True)))


def _loss(report: ClientReport) -> float | None:
    """Return the root of the mean squared loss that an update reported; else its mean loss."""
    loss = report.metrics.get(RMS_LOSS, report.metrics.get(LOSS))
    return None if loss is None else max(loss, 0.0)


def measured_s(
    memory: Mapping[str, Any], planned: Sequence[ClientReport], took_s: float
) -> dict[int, float]:
    """Return the seconds from task to update, or a lower bound, of the clients that have times.

    A client that did not arrive takes at least as long as it was given: the longer of that and of
    what was known before counts.

    Args:
        memory: what was known before the round.
        planned: the clients that were asked.
        took_s: seconds of the round, for clients without a known end.
    """
    clients = np.array([one.client for one in planned], np.int64)
    measured = {}
    for one, before_s in zip(planned, known_s(memory, clients).tolist(), strict=True):
        if one.times is None:
            continue
        ended_s = took_s if one.times.ended_s is None else one.times.ended_s
        waited_s = max(ended_s - one.times.asked_s, 0.0)
        exact = one.status == "accepted" or np.isnan(before_s)
        measured[one.client] = waited_s if exact else max(waited_s, before_s)
    return measured


def known_s(memory: Mapping[str, Any], clients: np.ndarray) -> np.ndarray:
    """Return t_k of these clients as it was measured, else as they said it, else NaN."""
    took_s = column(memory, TOOK, clients, np.nan)
    return np.where(np.isnan(took_s), column(memory, TOLD, clients, np.nan), took_s)


def timed(memory: Mapping[str, Any]) -> np.ndarray:
    """Return the clients that said how long they take, or were measured, int64 (k,)."""
    kept = [memory[name]["clients"] for name in (TOLD, TOOK) if name in memory]
    return np.unique(np.concatenate(kept)) if kept else np.zeros(0, np.int64)


def timeless(memory: Mapping[str, Any]) -> bool:
    """Return whether all say that they need no time: what is measured is then no device's time."""
    return TOLD in memory and not memory[TOLD]["numbers"].any()


@dataclass(frozen=True)
class Scale:
    """How rewards become numbers of about 0 to 1.

    Attributes:
        least: 0.999 times the least reward.
        span: the highest reward less `least`; 1e-4 or more.
        clip: the reward above which none counts for more, against outliers.
    """

    least: float
    span: float
    clip: float

    @classmethod
    def of(cls, rewards: np.ndarray, clip: float) -> Scale:
        """Return the scale of these rewards, float64 (n,); those of 0 are left out.

        Args:
            rewards: of the clients to choose from.
            clip: the share of the rewards that are below the highest that counts.
        """
        ordered = np.sort(rewards[rewards > 0])
        if not ordered.size:
            return cls(0.0, 1.0, 0.0)
        least = float(ordered[0]) * BELOW_LEAST
        place = min(int(ordered.size * clip), ordered.size - 1)
        return cls(least, max(float(ordered[-1]) - least, LEAST_SPAN), float(ordered[place]))

    def scaled(self, rewards: np.ndarray) -> np.ndarray:
        """Return (min(reward, clip) - least) / span, 0 or more, float64 (n,)."""
        clipped = np.minimum(rewards, self.clip)
        return np.asarray(np.maximum(clipped - self.least, 0.0) / self.span)


def uncertainty(last_rounds: np.ndarray, round: int) -> np.ndarray:
    """Return sqrt(0.1 ln R / r_k), float64 (n,), for clients that were last asked in round r_k."""
    return np.asarray(np.sqrt(0.1 * math.log(round) / last_rounds))


def slowed(
    values: np.ndarray, durations_s: np.ndarray, preferred_s: float, alpha: float
) -> np.ndarray:
    """Return the values, times (T / t_k)^alpha for clients that need longer than T seconds.

    Args:
        values: float64 (n,).
        durations_s: t_k, float64 (n,); NaN where it is not known, which counts as quick.
        preferred_s: T.
        alpha: 0: no penalty.
    """
    if not alpha:
        return values
    slow = durations_s > preferred_s
    longer = np.maximum(durations_s[slow], LEAST_DURATION_S)
    slowed = values.copy()
    slowed[slow] *= power(preferred_s / longer, alpha)
    return slowed


def best(values: np.ndarray, number: int) -> np.ndarray:
    """Return the places of the `number` highest values, the highest first."""
    return np.argsort(-values, kind="stable")[:number]


def candidates_for(utility: np.ndarray, number: int, cutoff: float, least: float) -> np.ndarray:
    """Return the places from which `number` clients are drawn, of the highest utility first.

    They are those with at least `cutoff` times the utility of the best one that would not be
    taken by rank, and in any case more than `least` times as many as are drawn.

    Args:
        utility: float64 (n,), n is 1 or more.
        number: of draws; n or less.
        cutoff: c.
        least: how many times as many candidates as draws.
    """
    order = best(utility, utility.size)
    limit = cutoff * utility[order[min(number, utility.size - 1)]]
    above = int((utility >= limit).sum())
    return order[: max(above, int(least * number) + 1 if least else number)]


@dataclass(frozen=True)
class Pacer:
    """When the percentile of the preferred duration moves, and by how much.

    The preferred duration T is a percentile of the clients' known durations (section 4.2). While
    the utility gained stays the same, the percentile goes up, so that slower clients are selected;
    when the utility changes sharply, it goes down.

    Attributes:
        step: rounds between two looks at it, and of each of the two periods that are compared.
        delta: percentage points; 0: the percentile stays.
    """

    step: int
    delta: float

    def gained(self, history: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        """Return the history with a round's mean reward added, as far back as it is needed."""
        mean = total(rewards) / (rewards.size + NOTHING)
        return np.append(history, mean)[-2 * self.step :]

    def percentile(self, percentile: float, history: np.ndarray, round: int) -> float:
        """Return the percentile of round `round`, from the percentile of the round before.

        Args:
            percentile: of the round before.
            history: the mean rewards of the rounds before, the newest last.
            round: from 1.
        """
        if not self.delta or round < 2 * self.step or round % self.step:
            return percentile
        before = float(history[-2 * self.step : -self.step].sum())
        change = abs(float(history[-self.step :].sum()) - before)
        if change <= FLAT * before:
            return min(100.0, percentile + self.delta)
        if change >= SHARP * before:
            return max(self.delta, percentile - self.delta)
        return percentile


def preferred_s(durations_s: np.ndarray, percentile: float) -> float:
    """Return T, in seconds; infinite from the 100th percentile on, or if no duration is known.

    Args:
        durations_s: float64 (n,), of all clients with a known duration.
        percentile: above 0.
    """
    if percentile >= 100 or not durations_s.size:
        return float("inf")
    place = min(int(durations_s.size * percentile / 100), durations_s.size - 1)
    return float(np.partition(durations_s, place)[place])


@settings_of_parts()
def oort() -> Preset:
    """Oort (Lai et al. 2021): fast clients with a high loss, and some new ones."""
    return Preset(Oort(), Mean())
