"""A knapsack: the exact choice is the best of all, and the table's is not far below it."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import LogicError
from layers.logic.numeric.knapsack import (
    Choice,
    Table,
    cells_down,
    cells_up,
    solve_exact,
    worth_taking,
)
from tests.logic.vector_files import vectors


def solve_by_table(
    values: np.ndarray, weights: np.ndarray, capacity: float, resolution: float = 1.0
) -> Choice:
    """Return the best choice for weights rounded up to whole cells, and capacity down."""
    usable = worth_taking(values, weights, capacity)
    if not usable.size:
        return Choice()
    room = cells_down(capacity, resolution)
    table = Table.of(room)
    for item in usable[::-1]:  # the newest is kept on a tie: the one that comes first
        table = table.with_item(
            int(item), float(values[item]), cells_up(float(weights[item]), resolution)
        )
    return Choice.of(table.choose(room), values, weights)


SOLVERS = (solve_exact, solve_by_table)
# Few different numbers, so that many choices are worth and weigh the same.
small = st.tuples(st.integers(0, 5), st.integers(0, 6))
measured = st.tuples(st.floats(0, 10), st.floats(0, 1e4))


def columns(items) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(items, np.float64).reshape(len(items), 2)
    return table[:, 0], table[:, 1]


def all_sums(numbers: np.ndarray) -> np.ndarray:
    """The sum of each subset; item k is in subset s if bit k of s is set."""
    sums = np.zeros(1)
    for number in numbers:
        sums = np.concatenate([sums, sums + number])
    return sums


def by_trying_all(values, weights, capacity: float) -> tuple[int, ...]:
    """The best choice with its ties, for whole numbers."""
    best = min(
        (-sum(values[list(some)]), sum(weights[list(some)]), some)
        for size in range(len(values) + 1)
        for some in combinations(np.flatnonzero(values > 0).tolist(), size)
        if sum(weights[list(some)]) <= capacity
    )
    return best[2]


@pytest.mark.parametrize("name", ["tiny", "all_fit", "greedy_fails", "float_weights_12"])
def test_the_optimum_equals_the_reference(name) -> None:
    file = vectors("knapsack_01_optimum")
    case = next(case for case in file["inputs"]["cases"] if case["name"] == name)
    expected = next(case for case in file["expected"]["cases"] if case["name"] == name)
    given = np.array(case["values"]), np.array(case["weights"]), case["capacity"]
    choice = solve_exact(*given)
    assert list(choice.items) == expected["optimum_set"]
    assert choice.value == pytest.approx(expected["optimum_value"], abs=file["tolerance"])
    assert choice.weight == pytest.approx(expected["optimum_weight"], abs=file["tolerance"])
    table = solve_by_table(*given)
    assert table.value == pytest.approx(expected["dp_ceil_weights"]["value"], abs=file["tolerance"])
    assert list(table.items) == expected["dp_ceil_weights"]["one_optimal_set"]


@pytest.mark.parametrize("solve", SOLVERS)
@given(items=st.lists(small, max_size=8), capacity=st.integers(0, 25))
def test_ties_go_to_the_lighter_choice_then_to_the_first(solve, items, capacity) -> None:
    values, weights = columns(items)
    choice = solve(values, weights, float(capacity))
    assert choice.items == by_trying_all(values, weights, capacity)


@given(items=st.lists(measured, max_size=18), share=st.floats(0, 1))
def test_no_choice_of_up_to_18_items_is_worth_more(items, share) -> None:
    values, weights = columns(items)
    capacity = float(share * weights.sum())
    choice = solve_exact(values, weights, capacity)
    fits = all_sums(weights) <= capacity * (1 - 1e-12)
    best = all_sums(values)[fits].max(initial=0.0)
    assert choice.value >= best * (1 - 1e-12)
    exactly = sum((Fraction(weights[item]) for item in choice.items), Fraction(0))
    assert exactly <= Fraction(capacity)


@given(
    items=st.lists(measured, max_size=12),
    share=st.floats(0, 1),
    resolution=st.sampled_from([0.5, 1.0, 7.0, 100.0]),
)
def test_a_table_loses_at_most_one_cell_for_each_item(items, share, resolution) -> None:
    values, weights = columns(items)
    capacity = float(share * weights.sum())
    choice = solve_by_table(values, weights, capacity, resolution)
    assert choice.weight <= capacity
    less = capacity - (len(items) + 1) * resolution
    floor = solve_exact(values, weights, less).value if less >= 0 else 0.0
    best = solve_exact(values, weights, capacity).value
    assert floor * (1 - 1e-12) <= choice.value <= best * (1 + 1e-12)


def test_an_item_without_weight_has_its_value_at_no_capacity() -> None:
    table = Table.of(4).with_item(7, 2.5, 0)
    assert (table.value(0), table.choose(0)) == (2.5, (7,))
    assert (table.value(-1), table.choose(-1)) == (0.0, ())


@given(items=st.lists(small, max_size=10), capacity=st.integers(0, 30))
def test_a_growing_table_answers_every_smaller_capacity(items, capacity) -> None:
    table = Table.of(40)
    for place, (value, weight) in enumerate(items):
        table = table.with_item(place, value, weight)
    values, weights = columns(items)
    for room in range(capacity + 1):
        chosen = Choice.of(table.choose(room), values, weights)
        assert chosen.value == solve_exact(values, weights, room).value
        assert chosen.weight <= room


def test_many_items_are_solved() -> None:
    rng = np.random.default_rng(1)
    values, weights = rng.uniform(0.5, 1.5, 2000), rng.exponential(100, 2000)
    choice = solve_exact(values, weights, 1000.0)
    density = values / weights
    order = np.argsort(-density)
    whole = int(np.searchsorted(np.cumsum(weights[order]), 1000.0, side="right"))
    at_least = values[order][:whole].sum()
    assert at_least <= choice.value <= at_least + values[order][whole]
    assert choice.weight <= 1000.0


def by_dynamic_programming(values, weights, capacity: int) -> tuple[int, ...]:
    """The best choice with its ties, for whole numbers: by value, then weight, then first items."""
    best = {0: (0, 0)}  # by weight: the value, and the items as bits, the first highest
    number = len(values)
    for item, (value, weight) in enumerate(zip(values, weights, strict=True)):
        with_it = {
            held + weight: (worth + value, items | 1 << (number - 1 - item))
            for held, (worth, items) in best.items()
            if value > 0 and held + weight <= capacity
        }
        for held, found in with_it.items():
            best[held] = max(best.get(held, (0, 0)), found)
    _, _, items = max((worth, -held, items) for held, (worth, items) in best.items())
    return tuple(item for item in range(number) if items >> (number - 1 - item) & 1)


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("seed", range(6))
def test_ties_among_more_items_than_a_word_has_bits_go_to_the_first(solve, seed) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 8, 150 + 10 * seed)
    values = weights + rng.integers(0, 2, weights.size)
    expected = by_dynamic_programming(values.tolist(), weights.tolist(), 300)
    assert solve(values.astype(float), weights.astype(float), 300.0).items == expected


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(
    ("values", "weights", "capacity", "said"),
    [
        ([1.0], [-1.0], 5.0, "0 or more"),
        ([np.nan], [1.0], 5.0, "finite"),
        ([1.0], [np.inf], 5.0, "finite"),
        ([1.0], [1.0], np.nan, "finite"),
        ([1.0, 2.0], [1.0], 5.0, "values"),
    ],
)
def test_invalid_knapsacks_are_refused(solve, values, weights, capacity, said) -> None:
    with pytest.raises(LogicError, match=said):
        solve(np.array(values), np.array(weights), capacity)


@pytest.mark.parametrize("solve", SOLVERS)
def test_weightless_items_fit_into_zero_capacity(solve) -> None:
    assert solve(np.ones(2), np.ones(2), -1.0) == Choice()
    assert solve(np.ones(3), np.array([0.0, 1.0, 0.0]), 0.0) == Choice((0, 2), 2.0, 0.0)
    assert solve(np.zeros(2), np.ones(2), 9.0) == Choice()
