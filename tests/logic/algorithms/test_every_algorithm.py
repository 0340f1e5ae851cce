"""What every algorithm promises that keeps a memory, whatever it does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import PRESETS, ServerState, Training
from layers.logic.algorithms.fedaim import FedAim, FedAimSplit
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.hooks.compressors import Stc
from tests.logic.algorithms import test_csfedavg, test_fedaim, test_fedsso
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds, same_bits
from tests.logic.quadratic import bowls

BOWLS = bowls(5, noise=0.3)
FEW = Training(steps=2)


def of_preset(name: str, **settings):
    made = PRESETS[name](**settings)
    parts = {"aggregator": made.aggregator, "hooks": made.hooks}
    return a_logic(made.selector, training=FEW, seed=3, **parts)


def a_fedaim(divergence: float, *hooks):
    selector = FedAimSplit(mediators=2, shuffle=True)
    return test_fedaim.a_fedaim(selector, aggregator=FedAim(divergence), hooks=hooks)


ALGORITHMS = {
    "csfedavg": (test_csfedavg.a_csfedavg(), test_csfedavg.CLIENTS),
    "fedaim": (a_fedaim(0.015), test_fedaim.MIXED),
    "fedaim with stc": (a_fedaim(0.015, Stc(0.5, 0.5)), test_fedaim.MIXED),
    "fedaim, apart": (a_fedaim(1e9), test_fedaim.MIXED),
    "fedsso": (
        of_preset("fedsso", beta=0.3, mean="stratified"),
        test_fedsso.clients_of(0, 1, 2, noise=0.1),
    ),
    "projected-stc": (of_preset("projected-stc", fraction=0.6, tau=2), BOWLS),
    "scaffold": (a_logic(alone(*BOWLS), hooks=[Scaffold()], training=FEW), BOWLS),
    "stc": (a_logic(alone(*BOWLS), hooks=[Stc()], training=FEW), BOWLS),
}


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=8)
@given(data=st.data())
def test_any_order_of_arrival_and_a_state_that_was_kept_give_the_same_bits(name, data) -> None:
    logic, clients = ALGORITHMS[name]
    straight, reports = run_rounds(4, a_state(logic), MemoryCarrier(logic, clients))
    peers = MemoryCarrier(logic, clients, order=data.draw(st.permutations(list(clients))))
    early, _ = run_rounds(2, a_state(logic), peers)
    state, again = run_rounds(2, ServerState.of_tree(early.tree()), peers)
    assert same_bits(state.weights, straight.weights)
    assert same_bits(state.buffers, straight.buffers)
    np.testing.assert_equal(dict(state.memory), dict(straight.memory))
    assert [one.clients for one in again] == [one.clients for one in reports[2:]]
