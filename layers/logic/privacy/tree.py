"""Noise that follows a binary tree over the rounds, and what one client can change in its nodes.

Source: Kairouz et al. 2021, "Practical and private (deep) learning without sampling or shuffling",
tree aggregation with restarts; the estimator is that of Honaker 2015, "Efficient use of
differentially private binary trees", from the nodes below.

Each node of the tree covers 2^h rounds in a row, and has the sum of their updates with noise of its
own. What is released after a round is computed from these noisy sums alone: the sum of all rounds,
from at most log2 t + 1 nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from layers.logic.core.privacy import Mechanism
from layers.logic.errors import LogicError

Nodes: TypeAlias = "Mapping[int, Mapping[str, np.ndarray]]"
"""The nodes that cover the rounds of a tree until now, by height: the exact ``sum`` of each, int64
(d,), and the ``estimate`` of it from noisy sums, float64 (d,)."""

AT_ONCE = 1024  # rounds


@dataclass(frozen=True)
class NoiseTree:
    """The trees of a run, one after the other.

    Attributes:
        restart: the rounds of a tree, after which another begins; None: one tree for all rounds.
        honaker: whether the estimate of a node also uses the nodes below it.
    """

    restart: int | None = None
    honaker: bool = True

    def nodes_after(self, round: int, memory: Mapping[str, Any], step: float) -> Nodes:
        """Return the nodes of the tree that the next round belongs to.

        Args:
            round: number of concluded rounds.
            memory: the ``nodes`` after them, and the ``step`` of their grid; empty at first.
            step: the width of the grid.

        Raises:
            LogicError: they cover other rounds than the tree, or are on another grid.
        """
        steps = round if self.restart is None else round % self.restart
        if steps == 0:
            return {}
        nodes: Nodes = memory.get("nodes", {})
        covered = sum(2**height for height in nodes)
        if covered != steps or memory["step"] != step:
            raise LogicError(
                f"the tree of noise of round {round + 1} goes on with {covered} rounds, but has "
                f"{steps}, or their noise is another, so that epsilon would not be true; begin a "
                "new run"
            )
        return nodes

    def with_round(
        self, nodes: Nodes, whole: np.ndarray, noise: Callable[..., Callable[[], np.ndarray]]
    ) -> Nodes:
        """Return the nodes with one round more.

        Args:
            nodes: those before.
            whole: int64 (d,), the sum of the round.
            noise: takes the exact sums that the noise hides, and returns a function whose every
                call returns the noise of one more node, (d,).
        """
        top = next(height for height in range(len(nodes) + 1) if height not in nodes)
        draw = noise(whole, *(nodes[height]["sum"] for height in range(top)))
        total, estimate = whole, np.zeros(0)
        for height in range(top + 1):
            below = nodes[height - 1] if height else None
            if below is not None:
                total = below["sum"] + total
            if not self.honaker and height < top:
                continue  # its noise would be in nothing that is released
            noisy = (total + draw()).astype(np.float64)
            if below is None or not self.honaker:
                estimate = noisy
            else:
                own = 1 / (2 - 2.0**-height)  # the share that has the least variance
                estimate = own * noisy + (1 - own) * (below["estimate"] + estimate)
        above = {height: node for height, node in nodes.items() if height > top}
        return {top: {"sum": total, "estimate": estimate}, **above}


def prefix(nodes: Nodes) -> np.ndarray:
    """Return the estimate of the sum of all rounds that the nodes cover, float64 (d,), or a 0."""
    return np.asarray(sum((nodes[height]["estimate"] for height in sorted(nodes)), 0.0))


@dataclass(frozen=True)
class TreeMechanism(Mechanism):
    """What trees release of a client that takes part in one round of every `period`.

    The noise of a node hides one update; `probability` is 1.

    Attributes:
        period: the rounds from one part of a client to its next one.
        restart: the rounds of a tree; None: there is one.
    """

    period: int = 1
    restart: int | None = None

    goes_on = True

    def releases(self, after: int, rounds: int) -> int:
        """Return the sum of c^2 over the nodes that end in these rounds, for the worst client.

        A node in which a client has c updates costs what c^2 nodes with one update cost.
        """
        known = -(-max(rounds, 1) // AT_ONCE) * AT_ONCE
        return int(_squares(self.period, self.restart, after, known)[rounds])


@lru_cache(maxsize=16)
def _squares(period: int, restart: int | None, after: int, rounds: int) -> np.ndarray:
    """Return the worst sum of squares for each number of rounds, int64 (rounds + 1,).

    A client's rounds are known, so there are `period` cases, and the sum of each is exact.
    """
    firsts = np.arange(min(period, rounds))  # the round of the cycle, from 0
    squares = np.zeros(firsts.size, np.int64)
    worst = np.zeros(rounds + 1, np.int64)
    for round in range(after + 1, rounds + 1):
        step = round if restart is None else (round - 1) % restart + 1
        width = 1
        while step % width == 0:  # a node that ends here covers `width` rounds
            whole, rest = divmod(width, period)
            parts = whole + ((firsts - (round - width)) % period < rest)
            squares += parts.astype(np.int64) ** 2
            width *= 2
        worst[round] = squares.max()
    return worst
