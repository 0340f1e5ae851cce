"""No client counts for more samples than it said that it has, and than hooks can make of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    ClientSide,
    ClientState,
    Facilities,
    Hook,
    ServerSide,
    Task,
    Training,
    run_round,
)
from layers.logic.aggregators.fednova import FedNova
from layers.logic.algorithms.fedshare import FedShare
from layers.logic.core.engine import ArrayData
from layers.logic.round.pipeline import ClientPipeline, ServerPipeline
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, lying, same_bits
from tests.logic.quadratic import bowls

CLIENTS = bowls(3)
OWN = len(CLIENTS[1])


def refused(logic, **changed) -> str:
    """The reason for which an update, or an offer, of client 1 is refused; empty: it counts."""
    peers = MemoryCarrier(logic, CLIENTS, forge=lying(1, **changed))
    state, report = run_round(a_state(logic), peers, logic)
    (client,) = (one for one in report.clients if one.client == 1)
    if client.status == "accepted":
        return ""
    assert client.status == "rejected"
    others = replace(logic, selector=alone(0, 2))
    expected, _ = run_round(a_state(others), MemoryCarrier(others, CLIENTS), others)
    assert same_bits(state.weights, expected.weights)
    return client.reason


@given(samples=st.one_of(st.integers(), st.integers(-1, 2 * OWN), st.floats(), st.booleans()))
def test_a_count_is_whole_positive_and_announced_or_it_does_not_count(samples) -> None:
    whole = isinstance(samples, int) and not isinstance(samples, bool)
    reason = refused(a_logic(alone(0, 1, 2)), samples=samples)
    assert bool(reason) == (not whole or not 1 <= samples <= OWN)
    assert not reason or f"a sample count of {samples}" in reason


@pytest.mark.parametrize(
    ("training", "most"),
    [
        (Training(epochs=3, batch_size=4), 3 * math.ceil(OWN / 4)),
        (Training(epochs=3, batch_size=0), 3),
        (Training(epochs=3, steps=7, batch_size=4), 7),
    ],
)
def test_no_client_has_taken_more_local_steps_than_its_task_has(training, most) -> None:
    logic = a_logic(alone(0, 1, 2), aggregator=FedNova(), training=training)
    assert refused(logic, steps=most) == ""
    assert refused(logic, steps=most + 1) == (
        f"a number of local steps of {most + 1}; its task has {most} at most"
    )


@dataclass(frozen=True)
class Doubled(Hook):
    """Every client trains on each of its samples twice; the server may know it or not."""

    told: bool = True

    class Server(ServerSide):
        def most_samples(self, samples, context):
            return 2 * samples if self.hook.told else samples

    class Client(ClientSide):
        def samples(self, data, context):
            return replace(data, n=2 * len(data))


def test_what_a_hook_adds_to_the_samples_counts_and_nothing_above_it() -> None:
    logic = a_logic(alone(0, 1, 2), hooks=[Doubled()])
    assert refused(logic) == ""
    assert refused(logic, samples=2 * OWN + 1).endswith(
        f"announced {OWN}, of which hooks make {2 * OWN} at most"
    )
    untold = a_logic(alone(0, 1, 2), hooks=[Doubled(told=False)], min_updates=0)
    _, report = run_round(a_state(untold), MemoryCarrier(untold, CLIENTS), untold)
    assert report.of("rejected") == (0, 1, 2)


@pytest.mark.parametrize(("part", "most"), [(1.0, 7), (0.5, 4), (0.01, 1)])
def test_fedshare_counts_the_shared_samples_that_a_client_takes_and_no_more(part, most) -> None:
    hook = FedShare(part=part)
    logic = a_logic(alone(0), hooks=[hook], facilities=Facilities(asset_sizes={"shared": 7}))
    pipeline = ServerPipeline(logic, a_state(logic), 1)
    assert pipeline.most_samples(0, 10) == 10 + most
    client = ClientPipeline(logic, _task(logic), ClientState(), {"shared": _data(7)})
    assert len(client.samples(_data(10))) == 10 + most


def _data(number: int) -> ArrayData:
    return ArrayData(np.zeros((number, 1), np.float32), np.zeros(number, np.int64))


def _task(logic) -> Task:
    state = a_state(logic)
    return Task(1, 0, 3, logic.training, state.weights, state.buffers)
