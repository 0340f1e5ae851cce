"""What a client tells in numbers that are absurd ends no round and spoils no memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layers.logic import ClientLost, run_round
from layers.logic.algorithms.knapsack import OfflineKP, OnlineKP
from layers.logic.algorithms.oort import Oort
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds
from tests.logic.quadratic import bowls

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
