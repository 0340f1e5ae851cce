"""The event queue: peers take turns, keep their order, and have their own limits."""

import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.network import ConnectionRejected, Joined, Limits, Received
from layers.network.event_queue import EVERYBODY, MAX_REJECTED, NOBODY, PEER_SHARE, EventQueue


def queue(**limits: int) -> tuple[EventQueue, list[str]]:
    """A queue, and the peers that it has resumed."""
    resumed: list[str] = []
    return EventQueue(Limits(**limits), resumed.append), resumed


def message(peer: str, number: int, size: int = 10) -> Received:
    return Received(peer, number, size)


def drain(events: EventQueue, last: int | None = None) -> list[tuple[str, int]]:
    taken = []
    while (event := events.get(0.0, last)) is not None:
        assert isinstance(event, Received)
        taken.append((event.peer, event.message))
    return taken


@given(st.lists(st.sampled_from("abc")), st.integers(0, 30))
def test_peers_take_turns_and_keep_their_order(order: list[str], mark: int) -> None:
    events, _ = queue()
    for number, peer in enumerate(order):
        events.put(message(peer, number), peer)
    mark = min(mark, len(order))
    before = drain(events, mark)
    assert sorted(number for _, number in before) == list(range(mark))
    assert events.last() == len(order)
    taken = before + drain(events)
    assert len(events) == 0
    for peer in "abc":
        mine = [place for place, (who, _) in enumerate(before) if who == peer]
        assert all(later - one <= 3 for one, later in pairwise(mine))
        numbers = [number for who, number in taken if who == peer]
        assert numbers == sorted(numbers)
    assert len(taken) == len(order)


def test_a_caller_that_waits_for_an_event_wakes_up_when_the_queue_is_closed() -> None:
    events, _ = queue()
    taken: list[object] = []
    waiting = threading.Thread(target=lambda: taken.append(events.get(None)), daemon=True)
    waiting.start()
    while not events._changed._waiters:  # type: ignore[attr-defined]
        time.sleep(0.001)
    events.close()
    waiting.join(60)
    assert taken == [None]


@pytest.mark.parametrize("timeout_s", [0.001, 0.5, 3600.0, None])
def test_a_caller_waits_for_an_event_as_long_as_it_says(
    timeout_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, _ = queue()
    now = [100.0]
    waits: list[float | None] = []
    sent = message("a", 1)

    def wait(left: float | None) -> None:
        waits.append(left)
        if len(waits) == 2:  # the first time, it was woken up for another caller
            events.put(sent, "a")
        now[0] += 0.0005

    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("layers.network.event_queue.time", clock)
    monkeypatch.setattr(events._changed, "wait", wait)
    assert events.get(timeout_s) is sent
    assert waits == [
        None if timeout_s is None else pytest.approx(timeout_s - passed) for passed in (0.0, 0.0005)
    ]


def test_dropped_messages_of_a_peer_leave_its_other_events_and_give_back_their_room() -> None:
    resumed: list[str] = []
    released: list[int] = []
    limits = Limits(max_queued_bytes=PEER_SHARE * 10_000)
    events = EventQueue(limits, resumed.append, released.append)
    events.put(Joined("revoked", "10.0.0.1:1", True), "revoked")
    for number in range(20):
        events.put(message("revoked", number, 10_000), "revoked", reserved=100 + number)
    events.put(message("other", 0, 10), "other", reserved=7)
    assert events.full("revoked")
    assert events.full("other"), "all are paused"
    events.drop("revoked")
    assert released == [sum(range(100, 120))]
    assert sorted(resumed) == [EVERYBODY, "revoked"]
    assert not events.full("revoked")
    assert not events.full("other")
    assert events.get(0.0) == Joined("revoked", "10.0.0.1:1", True)
    assert drain(events) == [("other", 0)]
    assert released[1:] == [7]
    events.put(message("revoked", 30), "revoked")
    events.drop("revoked")
    assert len(events) == 0
    events.put(message("revoked", 31), "revoked")
    assert drain(events) == [("revoked", 31)], "as for any new peer"


def test_a_peer_above_its_event_limit_is_paused_alone_until_half() -> None:
    events, resumed = queue(max_queued_events=4)
    for number in range(4):
        events.put(message("loud", number), "loud")
    assert not events.full("loud")
    events.put(message("loud", 4), "loud")
    events.put(message("quiet", 0), "quiet")
    assert events.full("loud")
    assert not events.full("quiet")
    assert not events.full(NOBODY)
    while not resumed:
        assert events.full("loud")
        assert events.get(0.0) is not None
    assert resumed == ["loud"]
    assert len(events) == 2
    assert not events.full("loud")


def test_a_peer_above_its_byte_share_is_paused_alone() -> None:
    events, resumed = queue(max_queued_bytes=PEER_SHARE * 10_000)
    events.put(message("loud", 0, 10_000), "loud")
    assert events.full("loud")
    assert not events.full("quiet")
    assert drain(events) == [("loud", 0)]
    assert resumed == ["loud"]


def test_beyond_the_byte_limit_all_peers_are_paused() -> None:
    events, resumed = queue(max_queued_bytes=1000)
    events.put(message("a", 0, 2000), "a")
    assert events.full("b")
    assert events.full(NOBODY)
    assert drain(events) == [("a", 0)]
    assert sorted(resumed) == [EVERYBODY]
    assert not events.full("b")


def test_a_flood_of_rejected_connections_is_bounded_and_delays_no_peer() -> None:
    events, _ = queue()
    for number in range(MAX_REJECTED + 5):
        events.put(ConnectionRejected(f"10.0.0.1:{number}", "client-1", "no TLS"))
    events.put(message("client-1", 7), "client-1")
    assert len(events) == MAX_REJECTED + 1
    assert not events.full("client-1")
    assert isinstance(events.get(0.0), ConnectionRejected)
    assert isinstance(events.get(0.0), Received)
