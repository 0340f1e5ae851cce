"""Noise that follows a tree over rounds: its values, its variance, and how often it hides one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from layers.logic import LogicError
from layers.logic.privacy.tree import NoiseTree, TreeMechanism, prefix
from tests.logic.vector_files import vectors

CLOSE = 1e-9


def released(tree: NoiseTree, sums: Any, draws: Callable[[int], np.ndarray]) -> Iterator[Any]:
    """Yield the prefix sum after each round; the k-th draw of the whole run is ``draws(k)``."""
    nodes: Any = {}
    drawn = iter(range(10**6))
    for whole in sums:
        nodes = tree.with_round(nodes, whole, lambda *_: lambda: draws(next(drawn)))
        yield prefix(nodes)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("honaker", [False, True])
def test_the_noise_and_its_variance_are_those_that_were_worked_out(
    place: int, honaker: bool
) -> None:
    row: Mapping[str, Any] = vectors("dp")["tree"][place]
    name = "honaker" if honaker else "plain"
    order = [tuple(node) for node in row[f"order_{name}"]]
    values = {(level, index): value for level, index, value in row["draws"]}
    nothing = np.zeros((row["steps"], 1), np.int64)
    tree = NoiseTree(honaker=honaker)
    noise = list(released(tree, nothing, lambda k: np.array([values[order[k]]])))
    assert [one[0] for one in noise] == pytest.approx(row[name], abs=CLOSE)
    # What each node counts for in what is released: draw k is the k-th unit vector.
    counted = np.zeros((row["steps"], len(order)), np.int64)
    shares = list(released(tree, counted, lambda k: np.eye(len(order))[k]))
    variances = [float((one**2).sum()) for one in shares]
    assert variances == pytest.approx(row[f"variance_{name}"], abs=CLOSE)
    if not honaker:
        used = [{order[k] for k in np.flatnonzero(one)} for one in shares]
        assert used == [{tuple(node) for node in block} for block in row["blocks"]]


@pytest.mark.parametrize("honaker", [False, True])
def test_what_is_released_is_the_sum_of_all_rounds_with_noise_on_it(honaker: bool) -> None:
    sums = np.random.default_rng(1).integers(-(2**30), 2**30, (21, 5))
    found = list(released(NoiseTree(honaker=honaker), sums, lambda k: np.zeros(5, np.int64)))
    assert np.allclose(found, np.cumsum(sums, axis=0), rtol=1e-12)


def test_noise_covers_the_sums_of_all_rounds_of_its_node() -> None:
    sums = np.arange(8, dtype=np.int64).reshape(8, 1) ** 2
    nodes: Any = {}
    for round, whole in enumerate(sums, 1):
        seen: list[Any] = []

        def noise(*covered: np.ndarray, seen: list[Any] = seen) -> Any:
            seen.extend(covered)
            return lambda: np.zeros(1, np.int64)

        nodes = NoiseTree().with_round(nodes, whole, noise)
        highest = (round & -round).bit_length() - 1
        assert sum(seen) == sums[round - 2**highest : round].sum()


def test_a_tree_begins_after_the_rounds_of_the_one_before_it() -> None:
    tree, nodes, kept = NoiseTree(restart=3), {}, {}
    for round in range(7):
        nodes = tree.nodes_after(round, kept, 0.5)
        assert sum(2**height for height in nodes) == round % 3
        nodes = tree.with_round(nodes, np.ones(1, np.int64), lambda *_: lambda: np.zeros(1))
        kept = {"nodes": nodes, "step": 0.5}
    for changed, step in (({}, 0.5), (kept, 0.25)):
        with pytest.raises(LogicError, match="round 8 goes on"):
            tree.nodes_after(7, changed, step)
    with pytest.raises(LogicError, match="round 9"):
        tree.nodes_after(8, kept, 0.5)


def by_hand(period: int, restart: int, after: int, rounds: int) -> int:
    """The sum of squares of the worst client, node by node."""
    worst = 0
    for first in range(period):
        there = [round % period == first for round in range(rounds)]
        total = 0
        for start in range(0, rounds, restart):
            steps = min(restart, rounds - start)
            for width in (2**height for height in range(20)):
                for end in range(width, steps + 1, width):
                    if start + end > after:
                        total += sum(there[start + end - width : start + end]) ** 2
        worst = max(worst, total)
    return worst


@pytest.mark.parametrize("period", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("restart", [1, 4, 11, None])
@pytest.mark.parametrize("after", [0, 5])
def test_what_one_client_changes_is_counted_node_by_node(
    period: int, restart: int | None, after: int
) -> None:
    mechanism = TreeMechanism(1.0, 1.0, period, restart)
    found = [mechanism.releases(after, rounds) for rounds in range(after, 30)]
    expected = [by_hand(period, restart or 99, after, rounds) for rounds in range(after, 30)]
    assert found == expected
    assert all(one <= next for one, next in pairwise(found))


def test_one_tree_for_many_rounds_is_counted_beyond_the_table() -> None:
    once = TreeMechanism(1.0, 1.0, 5000)
    assert once.releases(0, 1023) == 10
    assert once.releases(0, 1024) == once.releases(0, 2047) == 11
    assert once.releases(0, 2048) == 12


@pytest.mark.parametrize("honaker", [False, True])
@pytest.mark.parametrize("period", [2, 3, 16])
def test_all_released_sums_together_tell_no_more_than_is_counted(
    honaker: bool, period: int
) -> None:
    rounds, draws = 16, 31
    counted = np.zeros((rounds, draws), np.int64)
    shares = np.array(
        list(released(NoiseTree(honaker=honaker), counted, lambda k: np.eye(draws)[k]))
    )
    covariance = shares @ shares.T
    found = []
    for first in range(period):
        parts = np.arange(rounds) % period == first
        shift = np.cumsum(parts)  # what this client changes in each sum, in units of C
        found.append(float(shift @ np.linalg.solve(covariance, shift)))
    most = TreeMechanism(1.0, 1.0, period).releases(0, rounds)
    # The square of the distance of two Gaussians, with noise 1 for each node.
    assert max(found) <= most + CLOSE
    assert max(found) > 0.7 * most
