"""Who offers an update sends it when it is granted, and always gets a verdict in the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import (
    ClientLost,
    Offer,
    Selector,
    Update,
    Verdict,
    run_round,
)
from layers.logic.errors import PartFailed
from layers.logic.hooks.local_gradients import GradientReply
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, same_bits
from tests.logic.quadratic import bowls

CLIENTS = bowls(5)
Admit = Callable[[Sequence[Offer], int], Sequence[Verdict]]


def verdict(offer: Offer, granted: bool) -> Verdict:
    return Verdict(offer.round, offer.client, granted)


@dataclass(frozen=True)
class Asking(Selector):
    """Everybody offers; `choose` decides."""

    choose: Admit
    cohort: tuple[int, ...] = (0, 1, 2, 3, 4)

    def run(self, round):
        for client in self.cohort:
            round.train(client, offer=True)
        while round.outstanding:
            event = yield from round.next()
            if isinstance(event, Offer):
                self.say(round)
            if round.offers and not round.offers_due:
                self.say(round)
                for offer in list(round.offers.values()):
                    round.decline(offer)

    def say(self, round):
        for said in self.choose(list(round.offers.values()), len(round.offers_due)):
            round.grant(said) if said.granted else round.decline(said.client)


def largest(number: int) -> Admit:
    """Return a choice of the largest norms, once everybody has offered."""

    def choose(offers, waiting):
        if waiting:
            return []
        ranked = sorted(offers, key=lambda offer: offer.norm, reverse=True)
        return [verdict(offer, place < number) for place, offer in enumerate(ranked)]

    return choose


def verdicts(peers: MemoryCarrier) -> dict[int, bool]:
    assert len({v.client for v in peers.verdicts}) == len(peers.verdicts), "one verdict each"
    return {v.client: v.granted for v in peers.verdicts}


@given(order=st.permutations(range(5)))
def test_granted_offers_count_and_declined_ones_do_not(order) -> None:
    logic = a_logic(Asking(largest(2)))
    start = a_state(logic)
    peers = MemoryCarrier(logic, CLIENTS, order)
    state, report = run_round(start, peers, logic)
    norms = {client: np.linalg.norm(0.1 * data.b) for client, data in CLIENTS.items()}
    best = set(sorted(norms, key=norms.get)[-2:])
    assert set(report.of("accepted")) == best
    assert set(report.of("declined")) == set(CLIENTS) - best
    assert verdicts(peers) == {client: client in best for client in CLIENTS}
    only = a_logic(alone(*best))
    expected, _ = run_round(start, MemoryCarrier(only, CLIENTS), only)
    assert same_bits(state.weights, expected.weights)


@given(
    order=st.permutations(range(5)),
    lost=st.sets(st.integers(0, 4)),
    silent=st.sets(st.integers(0, 4)),
    deadline=st.none() | st.integers(0, 8),
    moods=st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=9),
)
def test_a_round_of_offers_always_ends_with_everybody_accounted_for(
    order, lost, silent, deadline, moods
) -> None:
    """A selector that grants, declines and hesitates as it likes."""
    turns = iter(moods * 100)

    def moody(offers, waiting):
        said = [(offer, next(turns)) for offer in offers]
        return [verdict(offer, mood) for offer, mood in said if mood is not None]

    logic = a_logic(Asking(moody), min_updates=0)
    peers = MemoryCarrier(logic, CLIENTS, order, lost, silent, deadline=deadline)
    state, report = run_round(a_state(logic), peers, logic)
    assert [client.client for client in report.clients] == [0, 1, 2, 3, 4]
    granted = {client for client, yes in verdicts(peers).items() if yes}
    declined = {client for client, yes in verdicts(peers).items() if not yes}
    assert set(report.of("declined")) == declined
    assert all(one.reason for one in report.clients if one.status != "accepted")
    assert set(report.of("accepted")) <= granted
    if deadline is None:
        assert set(report.of("accepted")) == granted
    assert set(state.last_accepted) == set(report.of("accepted"))


def test_a_grant_before_the_offer_is_none() -> None:
    def grant_all(offers, waiting):
        return [Verdict(1, client, True) for client in (0, 1)] if waiting else []

    logic = a_logic(Asking(grant_all, (0, 1)))
    peers = MemoryCarrier(logic, CLIENTS, order=(0, 1))
    _, report = run_round(a_state(logic), peers, logic)
    assert (report.of("accepted"), report.of("declined")) == ((0,), (1,))

    def unasked(offer):
        return [peers._offered[1]] if offer.client == 1 else [offer]

    peers = MemoryCarrier(logic, CLIENTS, order=(0, 1), forge_offer=unasked)
    _, report = run_round(a_state(logic), peers, logic)
    assert (report.of("accepted"), report.of("rejected")) == ((0,), (1,))
    assert report.clients[1].reason == "an update whose offer was not granted"


@pytest.mark.parametrize(
    ("order", "lost", "expected"),
    [
        ((0, 1, 2, 3, 4), (), [(1, 4), (1, 3), (2, 2), (3, 1), (4, 0)]),
        ((3, 0, 1, 2, 4), (3,), [(1, 3), (1, 2), (2, 1), (3, 0)]),  # nobody waits for the lost
    ],
)
def test_a_selector_is_told_how_many_may_still_offer(order, lost, expected) -> None:
    told: list[tuple[int, int]] = []

    def note(offers, waiting):
        told.append((len(offers), waiting))
        return [verdict(offer, True) for offer in offers if offer.client == 0]

    logic = a_logic(Asking(note))
    run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, order=order, lost=lost), logic)
    assert told[: len(expected)] == expected


@dataclass(frozen=True)
class Impatient(Selector):
    """Waits until everybody has offered, but no longer than until `at_s`; keeps what it saw."""

    at_s: float | None = 5.0
    seen: list[object] = field(default_factory=list, compare=False)

    def run(self, round):
        for client in round.clients:
            round.train(client, offer=True)
        event = True
        while round.offers_due or event is True:
            event = yield from round.next(self.at_s)
            self.seen.append(None if event is None else event.client)
            if event is None:
                break
        for offer in list(round.offers.values()):
            if offer.client != 4:
                round.grant(offer)
        while len(round.outstanding) > len(round.offers) + len(round.offers_due):
            yield from round.next()


def test_a_wait_ends_at_its_time_and_what_is_open_at_the_end_is_declined() -> None:
    selector = Impatient()
    logic = a_logic(selector)
    peers = MemoryCarrier(logic, CLIENTS, order=(4, 0, 1, 2, 3), silent=[3])
    _, report = run_round(a_state(logic), peers, logic)
    assert selector.seen == [4, 0, 1, 2, None]
    assert report.of("accepted") == (0, 1, 2)
    assert report.of("declined") == (3, 4), "3 still trained when the algorithm ended"


def test_without_a_time_nobody_is_hurried() -> None:
    logic = a_logic(Impatient(at_s=None), min_updates=0)
    peers = MemoryCarrier(logic, CLIENTS, silent=[3])
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("declined") == (0, 1, 2, 4)


@dataclass(frozen=True)
class Early(Selector):
    """Trains a client after its last wait."""

    def run(self, round):
        yield from round.until_all()
        round.train(0)


def test_an_algorithm_that_ends_before_its_clients_train_is_refused() -> None:
    logic = a_logic(Early())
    with pytest.raises(PartFailed, match=r"Early.run ends without waiting.*test_offers.py:\d+"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


@dataclass(frozen=True)
class Forgetful(Selector):
    """Never says who may send, or goes on to wait when everybody has."""

    offer: bool

    def run(self, round):
        for client in round.clients:
            round.train(client, offer=self.offer)
        while True:
            yield from round.next()


@pytest.mark.parametrize(
    ("offer", "what"), [(True, "wait for its verdict"), (False, "none has a task")]
)
def test_an_algorithm_that_waits_for_nothing_is_refused_with_its_line(offer, what) -> None:
    logic = a_logic(Forgetful(offer))
    with pytest.raises(PartFailed, match=rf"Forgetful.run waits .*{what}.*test_offers.py:\d+"):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)


def test_an_offer_is_gone_with_its_client_and_nobody_decides_on_it_any_more() -> None:
    seen: list[list[int]] = []

    def note(offers, waiting):
        seen.append([offer.client for offer in offers])
        return largest(1)(offers, waiting)

    logic = a_logic(Asking(note))
    gone = max(CLIENTS, key=lambda client: np.linalg.norm(CLIENTS[client].b))
    others = [client for client in CLIENTS if client != gone]

    def lost_again(offer):
        return [offer, ClientLost(1, gone, "power cut")] if offer.client == gone else [offer]

    peers = MemoryCarrier(logic, CLIENTS, order=[gone, *others], forge_offer=lost_again)
    _, report = run_round(a_state(logic), peers, logic)
    assert seen[0] == [gone]
    assert seen[1:] == [others[: place + 1] for place in range(4)]
    assert gone not in verdicts(peers), "neither granted nor declined"
    assert sum(verdicts(peers).values()) == 1, "the largest of the others is granted in its place"
    assert report.of("lost") == (gone,)


def test_only_a_client_that_offers_measures_the_norm_of_its_update() -> None:
    for offers in (True, False):
        selector = Asking(largest(5)) if offers else alone(0, 1, 2, 3, 4)
        logic = a_logic(selector)
        sent: list[Update] = []

        def note(update, sent=sent):
            sent.append(update)
            return [update]

        peers = MemoryCarrier(logic, CLIENTS, forge=note)
        _, report = run_round(a_state(logic), peers, logic)
        assert len(sent) == 5
        assert all(("norm" in update.metrics) is offers for update in sent)
        assert all(("norm" in client.metrics) is offers for client in report.clients)


def test_offers_of_strangers_and_of_other_rounds_are_ignored() -> None:
    seen: set[int] = set()

    def note(offers, waiting):
        seen.update(offer.client for offer in offers)
        return [verdict(offer, True) for offer in offers]

    def also(offer):
        old, stranger = replace(offer, round=0), replace(offer, client=4)
        return [old, stranger, replace(stranger, client=99), offer]

    logic = a_logic(Asking(note, cohort=(0, 1)))
    peers = MemoryCarrier(logic, CLIENTS, forge_offer=also)
    _, report = run_round(a_state(logic), peers, logic)
    assert seen == {0, 1}
    assert set(verdicts(peers)) == {0, 1}
    assert [client.client for client in report.clients] == [0, 1]


def test_offers_that_nobody_asked_for_are_ignored() -> None:
    logic = a_logic(alone(0, 1))

    def offering(update):
        return [Offer(update.round, update.client, 10, 1.0), update]

    peers = MemoryCarrier(logic, CLIENTS, forge=offering)
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0, 1)
    assert peers.verdicts == []


@pytest.mark.parametrize(
    "values",
    [
        {"norm": math.nan},
        {"norm": math.inf},
        {"norm": -1.0},
        {"samples": 0},
        {"samples": -3},
        {"metrics": {"loss": math.nan}},
    ],
)
def test_an_offer_that_cannot_be_is_refused_before_a_selector_sees_it(values) -> None:
    seen: set[int] = set()

    def note(offers, waiting):
        seen.update(offer.client for offer in offers)
        return [verdict(offer, True) for offer in offers]

    def lie(offer):
        return [replace(offer, **values)] if offer.client == 1 else [offer]

    logic = a_logic(Asking(note))
    peers = MemoryCarrier(logic, CLIENTS, forge_offer=lie)
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (1,)
    assert verdicts(peers)[1] is False
    assert seen == {0, 2, 3, 4}


@pytest.mark.parametrize("offers_first", [True, False])
def test_an_update_that_does_not_wait_for_its_verdict_is_refused(offers_first) -> None:
    sent = {}

    def hasty(offer):
        update = sent[offer.client] = peers._offered[offer.client]
        if offer.client != 1:
            return [offer]
        return [offer, update] if offers_first else [update]

    logic = a_logic(Asking(largest(5)))
    peers = MemoryCarrier(logic, CLIENTS, forge_offer=hasty)
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0, 2, 3, 4)
    assert report.clients[1].reason == "an update whose offer was not granted"


def test_a_granted_client_that_comes_back_is_granted_again() -> None:
    logic = a_logic(Asking(lambda offers, waiting: [verdict(offer, True) for offer in offers]))
    peers = MemoryCarrier(logic, CLIENTS, forge_offer=lambda offer: [offer, offer])
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("accepted") == (0, 1, 2, 3, 4)
    assert [(v.client, v.granted) for v in peers.verdicts[:2]] == [(0, True), (0, True)]


def test_the_norm_of_an_offer_is_that_of_the_update_before_any_hook_encoded_it() -> None:
    norms: dict[int, float] = {}

    def note(offers, waiting):
        norms.update({offer.client: offer.norm for offer in offers})
        return [verdict(offer, True) for offer in offers]

    logic = a_logic(Asking(note), hooks=[GradientReply()])
    run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    for client, data in CLIENTS.items():
        assert norms[client] == pytest.approx(np.linalg.norm(0.1 * data.b), rel=1e-5)
