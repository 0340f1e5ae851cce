"""Oort (Lai et al. 2021): clients whose loss is high and who are fast, and some new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from layers.logic.core.plan import Plan, Population, single_lanes
from layers.logic.core.selector import Selector
from layers.logic.errors import LogicError
from layers.logic.selectors.client_values import column, with_numbers
from layers.logic.selectors.uniform import check_size, cohort_size
from layers.logic.selectors.weighted import draw_weighted

if TYPE_CHECKING:
    from layers.logic.core.report import RoundReport

LOSS, ROUND, TOOK = "loss", "round", "took_s"
ACHIEVED, PREFERRED = "achieved", "preferred_s"


@dataclass(frozen=True)
class Oort(Selector):
    """Oort, algorithm 1, by mean losses.

    A client that has taken part in round r_k, with loss l_k in t_k seconds from its task to its
    update, has in round R the utility

        (min(n_k l_k, clip) / clip + sqrt(0.1 ln R / r_k)) (T / t_k)^alpha, the last where T < t_k.

    The paper's n_k sqrt(mean of the squared losses of single samples) is not to be had from a
    mean: n_k l_k stands for it, and is in the unit of its highest, as in the authors' code, so that
    the term for those that were long not seen has a scale. The share 1 - epsilon of the cohort is
    drawn in proportion to their utility among those that have `cutoff` times the utility of the
    last one that would be taken, or more; the rest are clients that never took part, uniformly
    (their speed is not known). Either fills up for the other.

    Keeps each client's last loss, round and seconds, T, and the utility of the last 2 windows.

    Attributes:
        fraction: C, the share of the population in a round; m = max(round(C K), 1) clients.
        count: m itself, instead of a fraction.
        alpha: penalty on those slower than T; 0: none.
        exploration: epsilon in round 1.
        decay: of epsilon, by round.
        least_exploration: below which it does not fall.
        cutoff: c, in (0, 1].
        clip: quantile of the n_k l_k above which none counts for more, against outliers.
        preferred_s: T in round 1; None: the round's deadline, and without one nobody is too slow.
        pacer_s: added to T when the utility of the last window is below that of the one before; 0:
            T stays.
        window: in rounds.
    """

    fraction: float = 0.1
    count: int | None = None
    alpha: float = 2.0
    exploration: float = 0.9
    decay: float = 0.98
    least_exploration: float = 0.2
    cutoff: float = 0.95
    clip: float = 0.95
    preferred_s: float | None = None
    pacer_s: float = 0.0
    window: int = 20

    def __post_init__(self) -> None:
        check_size(self.fraction, self.count)
        for name, above_zero in (
            ("exploration", False),
            ("decay", True),
            ("least_exploration", False),
            ("cutoff", True),
            ("clip", True),
        ):
            value = getattr(self, name)
            if not 0 <= value <= 1 or (above_zero and value == 0):
                raise LogicError(f"{name} must be between 0 and 1, not {value}")
        if self.preferred_s is not None and not 0 < self.preferred_s < np.inf:
            raise LogicError(f"preferred_s must be above 0, not {self.preferred_s}")
        for name in ("alpha", "pacer_s"):
            if not 0 <= getattr(self, name) < np.inf:
                raise LogicError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.window < 1:
            raise LogicError(f"window must be 1 or more, not {self.window}")
        if self.pacer_s and self.preferred_s is None:
            raise LogicError("pacer_s lengthens preferred_s; set that too")

    def select(
        self,
        population: Population,
        memory: Mapping[str, Any],
        round: int,
        rng: np.random.Generator,
    ) -> Plan:
        """Draw those of high utility, and some that never took part."""
        clients = np.array(population.clients, np.int64)
        m = cohort_size(self.fraction, self.count, clients.size)
        asked = population.asked(m)
        last = column(memory, ROUND, clients, 0.0)
        explored, new = np.flatnonzero(last > 0), np.flatnonzero(last == 0)
        epsilon = max(self.exploration * self.decay ** (round - 1), self.least_exploration)
        exploring = int(np.floor(epsilon * asked + 0.5))
        exploring = min(max(exploring, asked - explored.size), new.size)
        sizes = np.array([population.samples[client] for client in population.clients], np.float64)
        utility = self._utility(
            sizes[explored] * column(memory, LOSS, clients[explored], 0.0),
            last[explored],
            column(memory, TOOK, clients[explored], 0.0),
            memory.get(PREFERRED, self.preferred_s or population.deadline_s),
            round,
        )
        chosen = explored[self._exploit(utility, asked - exploring, rng)]
        drawn = rng.permutation(new)[:exploring]
        cohort = clients[np.concatenate([chosen, drawn])]
        return Plan(single_lanes(cohort.tolist()), enough=max(m, 1))

    def _utility(
        self,
        statistical: np.ndarray,
        last: np.ndarray,
        took_s: np.ndarray,
        preferred_s: float | None,
        round: int,
    ) -> np.ndarray:
        """Return the utility of clients that took part before, float64 (k,)."""
        if not statistical.size:
            return statistical
        most = float(np.quantile(statistical, self.clip))
        if most > 0:
            statistical = np.minimum(statistical, most) / most
        utility = statistical + np.sqrt(0.1 * np.log(round) / last)
        if preferred_s is not None and self.alpha:
            slower = np.maximum(took_s, preferred_s)
            utility = utility * (preferred_s / slower) ** self.alpha
        return np.asarray(utility)

    def _exploit(self, utility: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
        """Return the places of `number` clients, drawn among those of the highest utility."""
        if number <= 0:
            return np.zeros(0, np.int64)
        last_taken = np.partition(utility, utility.size - number)[utility.size - number]
        high = np.flatnonzero(utility >= self.cutoff * last_taken)
        drawn: np.ndarray = high[draw_weighted(rng, utility[high], number)]
        return drawn

    def on_round_end(self, memory: Mapping[str, Any], report: RoundReport) -> Mapping[str, Any]:
        """Keep who took part when, with what loss and in what time; lengthen T when it is due."""
        told = [c for c in report.clients if c.status == "accepted" and "loss" in c.metrics]
        learned = with_numbers(memory, LOSS, {c.client: max(c.metrics["loss"], 0.0) for c in told})
        learned = with_numbers(learned, ROUND, {c.client: float(report.round) for c in told})
        took_s = {
            c.client: c.times.ended_s - c.times.asked_s
            for c in told
            if c.times is not None and c.times.ended_s is not None
        }
        learned = with_numbers(learned, TOOK, took_s)
        if self.pacer_s and self.preferred_s is not None:
            gained = sum(c.samples * max(c.metrics["loss"], 0.0) for c in told)
            learned |= self._pace(memory, report.round, gained)
        return learned

    def _pace(self, memory: Mapping[str, Any], round: int, gained: float) -> dict[str, Any]:
        """Return T and the utility of the last rounds, the newest last."""
        achieved = np.append(memory.get(ACHIEVED, np.zeros(0)), gained)[-2 * self.window :]
        preferred_s = memory.get(PREFERRED, self.preferred_s)
        before, after = achieved[: -self.window], achieved[-self.window :]
        full = before.size == self.window
        if full and round % self.window == 0 and before.sum() > after.sum():
            preferred_s += self.pacer_s
        return {ACHIEVED: achieved, PREFERRED: preferred_s}
