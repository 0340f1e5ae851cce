"""Groups with models of their own: each trains, is folded and goes on apart, or together again."""

from __future__ import annotations

import numpy as np
import pytest

from layers.logic import LogicError, Selector, Training, run_round
from layers.logic.aggregators.by_group import ByGroup
from layers.logic.aggregators.mean import Mean
from layers.logic.aggregators.median import Median
from layers.logic.core.state import ServerState
from layers.logic.hooks.server_optimisers import FedAdam
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds, same_bits
from tests.logic.quadratic import bowls
from tests.logic.toys import InLanes

CLIENTS = bowls(6)
TRAINING = Training(steps=2, learning_rate=0.1)


class Halves(Selector):
    """Clients of even and of odd numbers are two groups."""

    def run(self, round):
        for client in round.clients:
            round.train(client, group="even" if client % 2 == 0 else "odd")
        yield from round.until_all()


def of_half(rest: int, rounds: int, rule=None) -> ServerState:
    """The end of a run of one half of the clients alone."""
    alone = InLanes(tuple((one,) for one in range(6) if one % 2 == rest))
    logic = a_logic(alone, aggregator=rule or Mean(), training=TRAINING, seed=3)
    return run_rounds(rounds, a_state(logic), MemoryCarrier(logic, CLIENTS))[0]


def grouped(rounds: int, **settings) -> tuple[ServerState, list]:
    logic = a_logic(Halves(), aggregator=ByGroup(**settings), training=TRAINING, seed=3)
    state, reports = a_state(logic), []
    for _ in range(rounds):
        restored = ServerState.of_tree(state.tree())  # as from a checkpoint
        state, report = run_round(restored, MemoryCarrier(logic, CLIENTS), logic)
        reports.append(report)
    return state, reports


@pytest.mark.parametrize("rule", [Mean(), Mean("uniform"), Median()], ids=str)
def test_each_group_goes_as_if_the_others_were_not_there(rule) -> None:
    state, _ = grouped(3, rule=rule)
    for rest, group in enumerate(("even", "odd")):
        alone = of_half(rest, 3, rule)
        assert same_bits(state.models[group][0], alone.weights)
        assert same_bits(state.models[group][1], alone.buffers)
    samples = np.array([sum(CLIENTS[one].n for one in range(6) if one % 2 == r) for r in (0, 1)])
    models = np.array([state.models[group][0] for group in ("even", "odd")], np.float64)
    mean = (samples[:, None] * models).sum(0) / samples.sum()
    np.testing.assert_allclose(state.weights, mean, rtol=1e-6, atol=1e-7)
    assert state.groups == {client: ("even", "odd")[client % 2] for client in range(6)}
    assert same_bits(state.model_of(3)[0], state.models["odd"][0])
    assert same_bits(state.model_of(77)[0], state.weights)


def test_groups_meet_after_every_so_many_rounds() -> None:
    apart, _ = grouped(2, together=3)
    met, _ = grouped(3, together=3)
    assert sorted(apart.models) == ["even", "odd"]
    assert (met.models, met.groups) == ({}, {})
    assert same_bits(met.weights, grouped(3)[0].weights)


def test_a_group_of_which_nobody_returns_keeps_its_model() -> None:
    logic = a_logic(Halves(), aggregator=ByGroup(), training=TRAINING, seed=3)
    first, _ = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    second, _ = run_round(first, MemoryCarrier(logic, CLIENTS, lost=[1, 3, 5]), logic)
    assert same_bits(second.models["odd"][0], first.models["odd"][0])
    assert same_bits(second.weights, second.models["even"][0])


def test_shares_are_those_of_the_groups_times_those_within_them() -> None:
    _, (report,) = grouped(1, rule=Median())
    assert [one.share for one in report.clients] == [None] * 6, "the median tells none"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"hooks": [FedAdam()]}, "FedAdam"),
        ({"selector": Uniform(1.0)}, "round.train"),
    ],
)
def test_what_works_on_the_global_model_and_a_round_without_groups_are_refused(
    settings, named
) -> None:
    def run() -> None:
        logic = a_logic(**{"selector": Halves(), "aggregator": ByGroup(), **settings})
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)

    with pytest.raises(LogicError, match=rf"by-group.*{named}"):
        run()
