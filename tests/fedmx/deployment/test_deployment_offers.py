"""Offers to a deployed server: who is granted may send, and who stays silent costs no round."""

from __future__ import annotations

import numpy as np

from layers.logic import Offer, Verdict
from layers.logic.algorithms.knapsack import OfflineKP
from tests.fedmx.scripted import (
    Least,
    Scripted,
    after_one_round,
    fleet,
    listening,
    update_of,
)
from tests.network.conftest import Certificates


def offering(client: Scripted) -> None:
    """Offer, and send what was granted."""
    while True:
        task = client.task()
        client.say(Offer(task.round, task.client, 10, float(task.client)))
        if client.expect(Verdict).granted:
            client.say(update_of(task))


def test_granted_offers_count_and_declined_ones_do_not(certificates: Certificates) -> None:
    server = listening(certificates, last=2, wait_for=4, selector=Least())
    model = server.weights.copy()
    with server, fleet(server, certificates, dict.fromkeys(range(4), offering)):
        first, second = server.rounds()
    for round in (first, second):
        assert (round.participants, round.report.of("declined")) == ((0, 1), (2, 3))
        assert round.rejected_connections == ()
    model = after_one_round(after_one_round(model, (0, 1)), (0, 1))
    np.testing.assert_array_equal(server.weights, model)
    up = {one.client: one.traffic.up_bytes for one in first.report.clients}
    assert up[2] < up[0]  # an offer is small


def test_who_vanishes_after_its_offer_blocks_nobody(certificates: Certificates) -> None:
    def vanishing(client: Scripted) -> None:
        task = client.task()
        client.say(Offer(task.round, task.client, 10, 0.0))
        client.hang_up()

    server = listening(certificates, wait_for=3, rejoin_s=0.2, selector=Least())
    with server, fleet(server, certificates, {0: vanishing, 1: offering, 2: offering}):
        (round,) = server.rounds()
    lost = [one for one in round.report.clients if one.client == 0]
    assert lost[0].status in ("lost", "declined")
    assert 1 in round.participants


def test_a_client_that_never_offers_does_not_cost_an_offline_round(
    certificates: Certificates,
) -> None:
    def slow_to_upload(client: Scripted) -> None:
        task = client.task()
        client.say(Offer(task.round, task.client, 10, 1.0, upload_s=14.0))
        assert client.expect(Verdict).granted
        client.say(update_of(task))

    def hanging(client: Scripted) -> None:
        client.task()
        assert not client.expect(Verdict).granted

    selector = OfflineKP(ask_times=False)  # waits for 0.9 of the 2 s that the two uploads leave
    server = listening(certificates, wait_for=3, selector=selector, deadline_s=30.0)
    scripts = {0: slow_to_upload, 1: slow_to_upload, 2: hanging}
    with server, fleet(server, certificates, scripts):
        (round,) = server.rounds()
    assert round.participants == (0, 1)
    assert round.report.of("declined") == (2,)


def test_who_comes_back_after_it_was_granted_can_still_send(certificates: Certificates) -> None:
    def forgetful(client: Scripted) -> None:
        task = client.task()
        client.say(Offer(task.round, task.client, 10, 0.0))
        assert client.expect(Verdict).granted
        client.hang_up()
        client.connect()
        client.be_ready()
        offering(client)

    server = listening(certificates, wait_for=3, selector=Least())
    with server, fleet(server, certificates, {0: forgetful, 1: offering, 2: offering}) as clients:
        (round,) = server.rounds()
    assert round.participants == (0, 1)
    assert [task.round for task in clients[0].tasks] == [1, 1]


def test_an_update_whose_offer_was_not_granted_is_refused(certificates: Certificates) -> None:
    def pushing(client: Scripted) -> None:
        client.say(update_of(client.task()))

    server = listening(certificates, wait_for=2, selector=Least(1))
    with server, fleet(server, certificates, {0: pushing, 1: offering}):
        (round,) = server.rounds()
    assert (round.participants, round.report.of("rejected")) == ((1,), (0,))


def test_what_a_client_says_when_it_offers_again_is_not_kept(
    certificates: Certificates,
) -> None:
    def again_and_again(client: Scripted) -> None:
        task = client.task()
        for _ in range(4):
            client.say(Offer(task.round, task.client, 10, 0.0, metrics={"x": 1.0}))
        assert client.expect(Verdict).granted
        client.say(update_of(task))

    server = listening(certificates, wait_for=2, selector=Least())
    with server, fleet(server, certificates, {0: again_and_again, 1: offering}):
        (round,) = server.rounds()
    assert round.participants == (0, 1)
    noted = [one.event for one in round.journal.entries if isinstance(one.event, Offer)]
    assert [one.metrics for one in noted if one.client == 0] == [{"x": 1.0}, {}, {}, {}]
