"""What a client tells in numbers that are absurd ends no round and spoils no memory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from layers.logic import ClientLost, ClientState, Task, Training, answer, run_round
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP
from layers.logic.algorithms.oort import Oort
from layers.logic.hooks.compressors import Stc
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, run_rounds
from tests.logic.quadratic import QuadraticEngine, bowl, bowls

CLIENTS = bowls(5)
HUGE = 1e308


@pytest.mark.parametrize("told", [{"norm": HUGE}, {"upload_s": HUGE}], ids=["norm", "upload_s"])
@pytest.mark.parametrize("solver", ["exact", "dp"])
def test_an_absurd_offer_is_refused_and_the_others_are_granted(told, solver) -> None:
    selector = OfflineKP(solver=solver, resolution_s=0.01, ask_times=False)
    logic = a_logic(selector, deadline_s=100.0)
    peers = MemoryCarrier(logic, CLIENTS)
    peers.forge_offer = lambda offer: [replace(offer, **told) if offer.client < 2 else offer]
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (0, 1)
    assert report.of("accepted") == (2, 3, 4)


def test_an_absurd_loss_is_refused_and_nobody_is_selected_by_it() -> None:
    logic = a_logic(Oort(count=1, exploration=0.0, least_exploration=0.0))
    peers = MemoryCarrier(logic, CLIENTS)
    peers.forge = lambda update: [
        replace(update, samples=1000, metrics={"loss": 1.0, "rms_loss": HUGE})
        if update.client == 2
        else update
    ]
    logic_all = a_logic(Oort(fraction=1.0))
    state, report = run_round(a_state(logic_all), peers, logic_all)
    assert report.of("rejected") == (2,)
    memory = state.memory["selector"]
    assert np.isfinite(memory["reward"]["numbers"]).all()
    assert np.isfinite(memory["gained"]).all()
    _, reports = run_rounds(3, state, MemoryCarrier(logic, CLIENTS))
    assert all(len(report.of("accepted")) == 1 for report in reports)


@pytest.mark.parametrize("offer", [False, True])
@pytest.mark.parametrize(
    ("data", "training"),
    [
        (bowl([1.0, 2.0], c=math.inf), Training()),  # the loss is infinite, the update is not
        (bowl([1.0, 2.0]), Training(loss="received", learning_rate=1e39)),  # only the update is
        (bowl([1.0, math.nan]), Training()),
    ],
)
def test_a_client_with_a_loss_or_an_update_that_is_not_finite_sends_none_and_keeps_its_memory(
    data, training, offer
) -> None:
    logic, before = a_logic(alone(0), size=2, hooks=[Stc()], training=training), ClientState(3)
    weights, buffers = np.zeros(2, np.float32), np.zeros(1, np.float32)
    task = Task(4, 0, 7, training, weights, buffers, last_accepted_round=3, offer=offer)
    with np.errstate(all="ignore"):
        update, after = answer(task, before, QuadraticEngine(2), data, logic)
    assert after is before
    assert update.cannot_train
    assert (update.round, update.client, update.samples, update.steps) == (4, 0, len(data), 0)
    assert update.delta.size == update.buffers.size == 0
    assert not update.slots
    assert [*update.metrics] == ["norm"] * offer
    assert all(math.isnan(one) for one in update.metrics.values())


def test_the_norm_of_a_client_is_that_of_its_offer_whatever_becomes_of_its_update() -> None:
    """The largest norm of a round is that of all who offered: also of who was lost after it."""
    logic = a_logic(OnlineKP(0.001, 10.0, ask_times=False), deadline_s=100.0)
    gone = max(CLIENTS, key=lambda client: np.linalg.norm(CLIENTS[client].b))
    norms: dict[int, float] = {}

    def forge(update):
        if update.client == gone:
            return [ClientLost(update.round, update.client, "cable cut")]
        return [replace(update, metrics={"loss": 1.0, "norm": 1e6})]

    peers = MemoryCarrier(logic, CLIENTS, forge=forge)
    peers.forge_offer = lambda offer: [norms.setdefault(offer.client, offer.norm) and offer]
    state, report = run_round(a_state(logic), peers, logic)
    assert report.of("lost") == (gone,)
    assert len(report.of("accepted")) == 4
    assert {c.client: c.metrics["norm"] for c in report.clients} == norms
    assert state.memory["selector"]["largest"] == norms[gone] == max(norms.values())
