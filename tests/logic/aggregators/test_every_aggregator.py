"""What every aggregator promises, whatever its rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import AGGREGATORS, ServerState, Training, run_round
from layers.logic.core.hook import Facilities
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds, same_bits
from tests.logic.quadratic import bowls
from tests.logic.toys import InLanes

CLIENTS = bowls(6, noise=0.3)


OWN = {"trimmed-mean": {"trim": 0.2}}  # of five updates one is left out at each end


def alone(*clients: int) -> InLanes:
    """Return each in a lane of its own, in a group that by-group needs and fedaim knows."""
    return InLanes(tuple((client,) for client in clients), group="nebs")


def logic_of(name: str, **changed):
    facilities = Facilities(auxiliary=lambda weights, *_: weights + np.float32(0.1))  # fltrust
    settings = {"training": Training(steps=2), "min_updates": 5, "seed": 7}
    settings["facilities"] = facilities
    return a_logic(
        alone(3, 0, 5, 1, 2, 4),
        aggregator=AGGREGATORS[name](**OWN.get(name, {})),
        **settings,
        **changed,
    )


@pytest.mark.parametrize("name", AGGREGATORS)
@settings(max_examples=15)
@given(order=st.permutations(range(6)))
def test_any_order_of_arrival_gives_the_same_bits(name, order) -> None:
    logic = logic_of(name)
    one, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS, order=order))
    other, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS))
    assert same_bits(one.weights, other.weights)
    assert same_bits(one.buffers, other.buffers)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_state_that_was_kept_goes_on_in_the_same_bits(name) -> None:
    logic = logic_of(name)
    state, _ = run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS))
    one, _ = run_rounds(2, state, MemoryCarrier(logic, CLIENTS))
    other, _ = run_rounds(2, ServerState.of_tree(state.tree()), MemoryCarrier(logic, CLIENTS))
    assert same_bits(one.weights, other.weights)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_a_lost_client_takes_nobody_elses_part(name) -> None:
    """The round is that of those who returned."""
    logic = logic_of(name)
    lost, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, lost=[5]), logic)
    fewer = a_logic(
        alone(3, 0, 1, 2, 4),
        aggregator=logic.aggregator,
        training=logic.training,
        seed=7,
        min_updates=5,
        facilities=logic.facilities,
    )
    without, _ = run_round(a_state(fewer), MemoryCarrier(fewer, CLIENTS), fewer)
    assert report.of("lost") == (5,)
    assert same_bits(lost.weights, without.weights)
    assert np.isfinite(lost.weights).all()
