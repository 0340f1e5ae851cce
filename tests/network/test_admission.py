"""Admission of handshakes: silent attackers cannot lock out clients."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from layers.network import Limits
from layers.network.acceptor import GRACE_S, PRESSED_S, Admission

HERE, THERE = "127.0.0.1", "192.0.2.7"


def filled(number: int, address: str = HERE, now: float = 0.0, most: int = 0) -> Admission[int]:
    admission: Admission[int] = Admission(Limits(max_handshakes=most or number))
    for key in range(number):
        admission.arrive(key, address, now)
    return admission


def test_a_newcomer_goes_first_only_before_a_party_with_more_handshakes_than_its_own() -> None:
    admission = filled(3)
    assert admission.goes_first(THERE)
    admission.arrive(8, THERE, 0.0)
    assert admission.goes_first(THERE), "2 of its own, and 3 of the other"
    admission.arrive(9, THERE, 0.0)
    assert not admission.goes_first(THERE), "3 of its own, and 3 of the other"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.7", "192.0.2.8", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", True),
        ("2001:db8:0:2::1", "2001:db8:0:3::1", False),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("no address", "192.0.2.7", False),
    ],
)
def test_addresses_of_one_network_count_as_one_party(one: str, other: str, same: bool) -> None:
    admission: Admission[str] = Admission(Limits())
    admission.arrive("alone", THERE.replace("7", "99"), 0.0)
    admission.arrive("one", one, 1.0)
    admission.arrive("other", other, 2.0)
    assert admission.evict(9.0) == ("one" if same else "alone")


def test_a_stalled_certificate_evicts_itself_and_not_its_address() -> None:
    admission: Admission[str] = Admission(Limits(max_handshakes=8))
    admission.arrive("honest", HERE, 0.0)
    admission.step("honest", 0.1, "client-1")
    for number in range(7):
        admission.arrive(f"copy {number}", HERE, 0.2)
        admission.step(f"copy {number}", 0.3, "client-2")
    assert [admission.evict(9.0) for _ in range(6)] == [f"copy {n}" for n in range(6)]
    assert admission.evict(9.0) == "honest"  # one each: it is the stalest


def test_deadlines_are_short_only_from_three_quarters_on() -> None:
    limits = Limits(max_handshakes=100)
    relaxed, pressed = filled(74, most=100), filled(75, most=100)
    assert relaxed.patience_s() == limits.handshake_s == 15
    assert relaxed.patience_s(pressed=True) == pressed.patience_s() == PRESSED_S == 1
    assert relaxed.expire(14.9) == []
    assert relaxed.expire(15.0) == list(range(74))
    # With more room, deadlines are long again.
    assert pressed.expire(0.99) == []
    assert pressed.expire(1.0) == [0]
    assert Admission(Limits(handshake_s=0.2)).patience_s(pressed=True) == 0.2


def test_each_step_has_its_own_deadline() -> None:
    admission = filled(1, most=10)
    admission.step(0, 14.0)
    admission.step(0, 28.0, "client-1")
    assert admission.expire(42.9) == []
    assert admission.expire(43.0) == [0]
    admission.step(0, 43.0)  # it has left already
    assert len(admission) == 0


class AnyCourse(RuleBasedStateMachine):
    """Whatever happens in whatever order, against a plain list of (key, party, time)."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(max_handshakes=8)
        self.admission: Admission[int] = Admission(self.limits)
        self.plain: list[tuple[int, str, float]] = []
        self.now = 0.0
        self.keys = 0

    def take(self, key: int) -> tuple[int, str, float]:
        (found,) = [one for one in self.plain if one[0] == key]
        self.plain.remove(found)
        return found

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5, 3.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(address=st.sampled_from([HERE, THERE]))
    def arrive(self, address: str) -> None:
        while self.admission.full:
            key = self.admission.evict(self.now)
            sizes = Counter(party for _, party, _ in self.plain)
            most, silent_s = max((sizes[one[1]], self.now - one[2]) for one in self.plain)
            if key is None:
                assert silent_s < GRACE_S
                return
            _, party, at = self.take(key)
            assert (sizes[party], self.now - at) == (most, silent_s)
            assert silent_s >= GRACE_S
        self.keys += 1
        self.admission.arrive(self.keys, address, self.now)
        self.plain.append((self.keys, address, self.now))

    @rule(data=st.data(), identity=st.sampled_from([None, "client-1", "client-2"]))
    def step(self, data: st.DataObject, identity: str | None) -> None:
        key = data.draw(st.integers(0, self.keys))
        self.admission.step(key, self.now, identity)
        if any(one[0] == key for one in self.plain):
            _, party, _ = self.take(key)
            self.plain.append((key, f"identity {identity}" if identity else party, self.now))

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.integers(0, self.keys))
        self.admission.leave(key)
        self.plain = [one for one in self.plain if one[0] != key]

    @rule(pressed=st.booleans())
    def expire(self, pressed: bool) -> None:
        for key in self.admission.expire(self.now, pressed=pressed):
            busy = pressed or len(self.plain) >= 6
            _, _, at = self.plain[0]
            assert key == self.take(key)[0]
            assert self.now - at >= (PRESSED_S if busy else self.limits.handshake_s)

    @invariant()
    def nothing_is_kept_of_who_has_left(self) -> None:
        assert list(self.admission._all) == [key for key, _, _ in self.plain]
        kept = {party: list(keys) for party, keys in self.admission._parties.items()}
        wanted: dict[str, list[int]] = {}
        for key, party, _ in self.plain:
            wanted.setdefault(party, []).append(key)
        assert kept == wanted
        assert len(self.admission) <= self.limits.max_handshakes


TestAnyCourse = AnyCourse.TestCase
TestAnyCourse.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@given(
    strangers=st.integers(1, 600),
    slots=st.integers(4, 128),
    share=st.floats(0.01, 1.0),
    byte=st.booleans(),
    elsewhere=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_an_honest_client_joins_quickly_among_attackers(
    strangers: int, slots: int, share: float, byte: bool, elsewhere: bool
) -> None:
    """A simulation: evicted attackers reconnect at once; accepting takes no time."""
    admission: Admission[int] = Admission(Limits(max_handshakes=slots))
    # At their address, it must take its steps within the grace period.
    round_trip_s = share * (0.9 * PRESSED_S if elsewhere else 0.8 * GRACE_S)
    queue = [*range(1, strangers + 1), 0]  # the honest client is 0 and comes last
    now, steps, due = 0.0, 0, math.inf
    while steps < 3:
        while queue:
            if admission.full:
                silent = admission.evict(now)
                if silent is None:
                    break
                assert silent != 0
                queue.append(silent)
            key = queue.pop(0)
            admission.arrive(key, THERE if elsewhere and key == 0 else HERE, now)
            if key == 0:
                due = now + round_trip_s
            elif byte:
                admission.step(key, now)
        now += 0.01
        if now >= due:
            admission.step(0, now)
            steps, due = steps + 1, now + round_trip_s
        late = admission.expire(now)
        assert 0 not in late
        queue += late
        assert now < 60
    turns = strangers / slots + 1
    assert now <= turns * (GRACE_S + 0.02) + 3 * (round_trip_s + 0.01) + 0.1
