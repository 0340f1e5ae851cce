"""Which parts go together with masked updates; the server reads their sum alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from layers.logic import ClientSide, Hook, LogicError, Need, ServerSide, Trait, run_round
from layers.logic.aggregators.krum import Krum
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median
from layers.logic.algorithms.scaffold import Scaffold
from layers.logic.errors import PartFailed
from tests.logic.memory_carrier import InLanes, MemoryCarrier, a_logic, a_state, alone
from tests.logic.quadratic import bowls
from tests.logic.toys import Offered

CLIENTS = bowls(4, noise=0.2)


@dataclass(frozen=True)
class Hidden(Hook):
    """Sends the update in its slot, and reveals a mean that the test gives."""

    mean: Any = None

    provides = frozenset({Trait.ENCODES_UPDATE})

    class Client(ClientSide):
        def send(self, update, context):
            context.slot["hidden"] = update.delta
            return replace(update, delta=update.delta[:0], buffers=update.buffers[:0])

    class Server(ServerSide):
        def reveal(self, state, context):
            return self.hook.mean


@dataclass(frozen=True)
class Peeks(Hook):
    """Its server side looks at each accepted update."""

    class Server(ServerSide):
        def on_accepted(self, update, context):
            raise AssertionError("nobody sees a single update")


@dataclass(frozen=True)
class Collects(Hook):
    requires = frozenset({Need.EACH_CLIENT})


@dataclass(frozen=True)
class Plain(Hidden):
    provides = frozenset()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"aggregator": Krum(1), "min_updates": 4}, "Hidden .* Krum"),
        ({"aggregator": Median()}, "Hidden .* Median"),
        ({"aggregator": Mean("plan")}, "Hidden"),
        ({"hooks": [Hidden(), Peeks()]}, "Hidden .* Peeks"),
        ({"hooks": [Hidden(), Collects()]}, "Hidden .* Collects"),
        ({"hooks": [Hidden(), Scaffold(dense=True)]}, "Hidden .* Scaffold"),
        ({"hooks": [Plain()]}, "ENCODES_UPDATE"),
    ],
)
def test_parts_that_look_at_single_updates_are_refused(settings, says) -> None:
    with pytest.raises(LogicError, match=says):
        a_logic(alone(*CLIENTS), **{"hooks": [Hidden()], **settings})


@pytest.mark.parametrize("selector", [Offered(), InLanes(((0, 1), (2,), (3,)))])
def test_lanes_of_several_clients_and_offers_are_refused_in_the_round(selector) -> None:
    logic = a_logic(selector, hooks=[Hidden()])
    peers = MemoryCarrier(logic, CLIENTS)
    with pytest.raises(LogicError, match=f"Hidden .* {type(selector).__name__}"):
        run_round(a_state(logic), peers, logic)
    assert not peers.tasks


def test_a_mean_of_another_form_names_the_hook() -> None:
    hook = Hidden((np.zeros(3), np.zeros(1, np.float32)))
    logic = a_logic(alone(*CLIENTS), hooks=[hook])
    with pytest.raises(PartFailed, match=re.escape("float64 of shape (3,)")):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


def test_the_mean_is_the_aggregators_one_contribution_and_no_value_is_recorded() -> None:
    mean = np.array([1, 2, 3], np.float32)
    logic = a_logic(alone(*CLIENTS), hooks=[Hidden((mean, np.zeros(1, np.float32)))])
    state, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    np.testing.assert_array_equal(state.weights, mean)
    assert report.of("accepted") == tuple(CLIENTS)
    assert {one.peak for one in report.clients} == {0.0}, "how far it goes is not known"
