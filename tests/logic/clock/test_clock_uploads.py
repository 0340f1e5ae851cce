"""Uploads share the way to the server: in turn, or all at once within its bandwidth."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic.clock.uploads import Channel, Parallel, Serial


@dataclass(frozen=True)
class Sent:
    """One upload that has ended."""

    client: int
    began_s: float
    ended_s: float


def drained(channel: Channel, entering: list[tuple[float, int, float]]) -> list[Sent]:
    """Let (ready_s, bytes, alone_s) enter as they are ready; return what ended, in order."""
    waiting = sorted((ready_s, client) for client, (ready_s, _, _) in enumerate(entering))
    sent = []
    while True:
        end = channel.next_end()
        if waiting and (end is None or waiting[0][0] < end[0]):
            ready_s, client = waiting.pop(0)
            channel.enter(client, entering[client][1], entering[client][2], ready_s)
        elif end is not None:
            channel.end(end[1])
            sent.append(Sent(end[1], end[2], end[0]))
        else:
            return sent


def ends_of(channel: Channel) -> Iterator[tuple[float, int, float]]:
    """End one upload after the other."""
    while (end := channel.next_end()) is not None:
        yield end
        channel.end(end[1])


moments = st.floats(0, 100, allow_nan=False)
lengths = st.floats(0.01, 100, allow_nan=False)
uploads = st.lists(st.tuples(moments, st.integers(1, 10**6), lengths), min_size=1, max_size=12)


@pytest.mark.parametrize("uploads", [Parallel(), Parallel(bytes_per_s=10), Serial()])
def test_an_aborted_upload_never_ends_when_its_client_comes_back(uploads) -> None:
    channel = uploads.open(None)
    channel.enter(1, 10, 1.0, 0.0)
    channel.enter(0, 100, 10.0, 0.0)
    channel.leave(0, 0.5)
    assert channel.next_end()[1] == 1
    channel.end(1)
    channel.enter(0, 100, 10.0, 5.0)
    assert list(ends_of(channel)) == [(15.0, 0, 5.0)]


@pytest.mark.parametrize("bytes_per_s", [None, 10.0])
def test_a_client_that_comes_back_while_others_send_starts_again(bytes_per_s) -> None:
    channel = Parallel(bytes_per_s).open(None)
    channel.enter(0, 10, 10.0, 0.0)
    channel.enter(1, 1, 6.0, 0.0)
    channel.leave(0, 1.0)
    channel.enter(0, 10, 10.0, 5.0)
    assert [end[:2] for end in ends_of(channel)] == [(6.0, 1), (15.0, 0)]


@pytest.mark.parametrize("bytes_per_s", [None, 1e9])
def test_who_leaves_does_not_change_the_order_of_the_others(bytes_per_s) -> None:
    channel = Parallel(bytes_per_s).open(None)
    for client, alone_s in enumerate([1.0, 5.0, 2.0, 6.0, 7.0, 3.0, 4.0]):
        channel.enter(client, 100, alone_s, 0.0)
    channel.leave(2, 0.5)
    ended = [(end[1], pytest.approx(end[0])) for end in ends_of(channel)]
    assert ended == [(0, 1.0), (5, 3.0), (6, 4.0), (1, 5.0), (3, 6.0), (4, 7.0)]


def test_an_upload_over_a_link_that_takes_no_time_takes_the_whole_way() -> None:
    channel = Parallel(10.0).open(None)
    channel.enter(0, 100, 0.0, 1.0)
    channel.enter(1, 20, 5.0, 1.0)  # at 4 bytes a second
    assert channel.next_end() == (6.0, 1, 1.0)
    channel.end(1)
    assert channel.next_end() == (1 + 5 + 70 / 10, 0, 1.0)


@pytest.mark.parametrize("uploads", [Parallel(), Parallel(30.0), Serial()])
def test_a_way_goes_on_from_a_checkpoint_with_the_same_uploads(uploads) -> None:
    def ends(channel: Channel) -> list[tuple[float, int, float]]:
        found = []
        while (end := channel.next_end()) is not None:
            found.append(end)
            channel.end(end[1])
            if len(found) == 1:  # it comes while the others send
                channel.enter(9, 40, 3.0, end[0])
        return found

    channel = uploads.open(None)
    for client, alone_s in enumerate([3.0, 8.0, 5.0, 5.0, 1.0]):
        channel.enter(client, 100, alone_s, client / 4)
    channel.end(channel.next_end()[1])
    again = uploads.open(None)
    again.restore(json.loads(json.dumps(channel.tree()), object_hook=numbered))
    left = ends(channel)
    assert len(left) == 5
    assert ends(again) == left


def numbered(tree: dict) -> dict:
    """Return a part of a checkpoint with client numbers, which JSON makes strings of."""
    return {int(key) if key.isdigit() else key: value for key, value in tree.items()}


@given(uploads)
def test_serial_uploads_never_overlap_and_go_as_they_are_ready(entering) -> None:
    sent = drained(Serial().open(None), entering)
    assert [one.client for one in sent] == [
        client for _, client in sorted((e[0], k) for k, e in enumerate(entering))
    ]
    free_s = 0.0
    for one in sent:
        ready_s, _, alone_s = entering[one.client]
        assert one.began_s == max(free_s, ready_s), "it begins as soon as it can"
        assert one.ended_s == pytest.approx(one.began_s + alone_s)
        free_s = one.ended_s


@given(uploads, st.randoms(use_true_random=False))
def test_serial_uploads_in_turn_keep_the_plans_order(entering, random) -> None:
    turns = list(range(len(entering)))
    random.shuffle(turns)
    sent = drained(Serial().open(turns), entering)
    assert [one.client for one in sent] == turns
    for before, after in itertools.pairwise(sent):
        assert after.began_s == max(before.ended_s, entering[after.client][0])


def test_who_falls_out_of_a_turn_lets_the_next_begin_then() -> None:
    channel = Serial().open([0, 1, 2])
    channel.enter(1, 1, 5.0, 2.0)
    channel.enter(2, 1, 5.0, 3.0)
    assert channel.next_end() is None, "both wait for the first, who still trains"
    channel.leave(0, 10.0)
    assert channel.next_end() == (15.0, 1, 10.0)
    channel.leave(1, 12.0)  # in the middle of it
    assert channel.next_end() == (17.0, 2, 12.0)


@given(uploads)
def test_uploads_side_by_side_take_what_they_take_alone(entering) -> None:
    sent = drained(Parallel().open(None), entering)
    assert {(one.client, one.began_s, one.ended_s) for one in sent} == {
        (k, ready_s, ready_s + alone_s) for k, (ready_s, _, alone_s) in enumerate(entering)
    }


@given(uploads, st.floats(10, 1e6))
def test_a_shared_way_carries_all_bytes_and_no_more_than_it_can(entering, capacity) -> None:
    sent = drained(Parallel(capacity).open(None), entering)
    assert sorted(one.client for one in sent) == list(range(len(entering)))
    assert [one.ended_s for one in sent] == sorted(one.ended_s for one in sent)
    for one in sent:
        ready_s, _, alone_s = entering[one.client]
        assert one.began_s == pytest.approx(ready_s)
        assert one.ended_s - ready_s >= alone_s * (1 - 1e-6), "faster than its own link"
    # What ended by any time had at least so long as the whole way needs for it.
    first_s = min(entry[0] for entry in entering)
    total = 0
    for one in sent:
        total += entering[one.client][1]
        assert (one.ended_s - first_s) * capacity >= total * (1 - 1e-6)


@given(uploads, st.floats(10, 1e6))
def test_a_shared_way_gives_the_least_as_much_as_can_be(entering, capacity) -> None:
    """Max-min fairness: who gets less than its link allows gets as much as anybody."""
    channel = Parallel(capacity).open(None)
    for client, (_, size, alone_s) in enumerate(entering):
        channel.enter(client, size, alone_s, 0.0)
    rates = {client: upload.rate for client, upload in channel.uploads.items()}
    most = {client: size / alone_s for client, (_, size, alone_s) in enumerate(entering)}
    assert sum(rates.values()) <= capacity * (1 + 1e-9)
    assert sum(rates.values()) == pytest.approx(min(capacity, sum(most.values())))
    for client, rate in rates.items():
        assert rate <= most[client] * (1 + 1e-9)
        if rate < most[client] * (1 - 1e-9):
            assert rate >= max(rates.values()) * (1 - 1e-9)


def test_who_leaves_a_shared_way_leaves_its_share_to_the_others() -> None:
    channel = Parallel(100.0).open(None)
    for client in (0, 1):
        channel.enter(client, 1000, 1.0, 0.0)  # either could take all of it
    assert channel.next_end() == (20.0, 0, 0.0)
    channel.leave(0, 10.0)
    assert channel.next_end() == (15.0, 1, 0.0)  # the other half at twice the rate
