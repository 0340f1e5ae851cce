"""The memory budget: no refusal, no deadlock, and a bounded sum."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.network import Limits, memory
from layers.network.memory import SMALL_BYTES, IncomingMemory, MemoryBudget, Reservation

K = SMALL_BYTES + 1  # the smallest size that counts


class Parties:
    """A budget with accounts."""

    def __init__(self, most: int, number: int, first: int | None = None) -> None:
        self.granted: list[Reservation] = []
        self.waits = 0
        self.room = False
        self.budget = MemoryBudget(most, self._has_room, self._has_to_wait, first)
        self.accounts = [self._account() for _ in range(number)]

    def _has_room(self) -> None:
        self.room = True

    def _has_to_wait(self) -> None:
        self.waits += 1

    def _account(self) -> Reservation:
        account = self.budget.account(lambda: self.granted.append(account))
        return account

    def settle(self) -> list[Reservation]:
        """Call `grant` if the budget asked for it, and return the granted accounts."""
        if self.room:
            self.room = False
            self.budget.grant()
        granted, self.granted = self.granted, []
        return granted


def test_memory_is_granted_in_the_order_of_announcements() -> None:
    parties = Parties(10 * K, 4)
    one, two, three, four = parties.accounts
    assert one.reserve(8 * K)
    assert not two.reserve(4 * K)
    assert not three.reserve(K)  # it would fit, but is not next
    assert not four.reserve(K)
    assert (parties.budget.used, parties.budget.waiting, parties.waits) == (8 * K, 3, 3)
    assert one.complete(8 * K) == 8 * K
    assert parties.settle() == []  # the caller has not taken it
    parties.budget.release(8 * K)
    assert parties.settle() == [two, three, four]
    assert parties.budget.used == 6 * K


def test_a_message_larger_than_the_budget_is_admitted_alone() -> None:
    parties = Parties(10 * K, 3)
    one, giant, three = parties.accounts
    assert one.reserve(K)
    assert not giant.reserve(100 * K)
    assert not three.reserve(K)
    one.close()
    assert parties.settle() == [giant]
    parties.budget.release(giant.complete(100 * K))
    assert parties.settle() == [three]


def test_small_messages_never_wait_and_do_not_count() -> None:
    parties = Parties(K, 2)
    one, two = parties.accounts
    assert one.reserve(K)
    assert all(two.reserve(SMALL_BYTES) for _ in range(100))
    assert two.complete(SMALL_BYTES) == 0
    assert parties.budget.used == K


def test_connections_with_partial_messages_do_not_deadlock() -> None:
    parties = Parties(4 * K, 4)
    for account in parties.accounts:
        assert account.reserve(K)
    one, two, three, _ = parties.accounts
    assert two.reserve(
        3 * K
    )  # exceeds the budget, because its first message cannot complete otherwise
    assert not one.reserve(3 * K)
    assert not three.reserve(K)
    assert two.reserve(K)
    parties.budget.release(two.complete(K))
    parties.budget.release(two.complete(3 * K))
    assert parties.settle() == []
    parties.budget.release(two.complete(K))
    assert parties.settle() == [one]
    one.close()
    assert parties.settle() == [three]


def test_another_connection_may_exceed_the_budget_before_the_caller_takes_the_messages() -> None:
    parties = Parties(2 * K, 2)
    one, two = parties.accounts
    assert one.reserve(K)
    assert two.reserve(K)
    assert one.reserve(K), "beyond the budget"
    assert not two.reserve(K)
    assert one.complete(K) == K
    assert parties.settle() == [], "the other message is unfinished"
    assert one.complete(K) == K
    assert parties.settle() == [two]
    assert parties.budget.used == 4 * K


def test_a_closed_connection_releases_its_memory_and_its_place() -> None:
    parties = Parties(2 * K, 3)
    one, two, three = parties.accounts
    assert one.reserve(2 * K)
    assert not two.reserve(K)
    assert not three.reserve(K)
    two.close()
    assert (two.waits, parties.budget.waiting) == (0, 1)
    one.close()
    assert parties.settle() == [three]
    three.close()
    assert parties.budget.used == 0


def test_the_budget_doubles_for_slow_senders_and_shrinks_afterwards() -> None:
    parties = Parties(16 * K, 6, first=4 * K)
    assert all(one.reserve(2 * K) for one in parties.accounts[:2])
    assert not any(one.reserve(2 * K) for one in parties.accounts[2:])
    parties.budget.grow()
    assert (parties.budget.budget, parties.settle()) == (8 * K, parties.accounts[2:4])
    parties.budget.grow()
    assert (parties.budget.budget, parties.settle()) == (16 * K, parties.accounts[4:])
    parties.budget.grow()  # nobody waits
    assert parties.budget.budget == 16 * K
    for account in parties.accounts[1:-1]:
        parties.budget.release(account.complete(2 * K))
    assert parties.accounts[1].reserve(K)  # the first budget would not suffice
    assert (parties.budget.used, parties.budget.budget) == (5 * K, 16 * K)
    parties.budget.release(parties.accounts[1].complete(K))
    for account in (parties.accounts[0], parties.accounts[-1]):
        parties.budget.release(account.complete(2 * K))
    assert parties.accounts[0].reserve(2 * K)
    assert parties.budget.budget == 4 * K


@pytest.mark.parametrize(("complete", "doubles"), [(3, False), (2, False), (1, True)])
def test_the_budget_does_not_double_when_the_caller_is_slow(complete: int, doubles: bool) -> None:
    parties = Parties(16 * K, 3, first=4 * K)
    one, two, three = parties.accounts
    assert one.reserve(complete * K)
    assert two.reserve((4 - complete) * K)
    assert not three.reserve(2 * K)
    one.complete(complete * K)  # but the caller does not take it
    parties.budget.grow()
    assert parties.budget.budget == (8 if doubles else 4) * K
    assert parties.settle() == ([three] if doubles else [])


def test_messages_of_closed_connections_do_not_make_the_budget_double() -> None:
    parties = Parties(16 * K, 4, first=4 * K)
    gone, one, two, three = parties.accounts
    assert gone.reserve(4 * K)
    gone.close()
    for account in (one, two):
        assert account.reserve(2 * K)
        account.complete(2 * K)
    assert not three.reserve(2 * K)  # it waits for the caller, and for no sender
    parties.budget.grow()
    assert parties.budget.budget == 4 * K


@dataclass(eq=False)
class Reader:
    """A connection that has announced a message, and receives it."""

    held_bytes: int = 2 * K
    message_bytes_received: int = 0
    waits: bool = False
    fileno: int | None = None

    def refuse(self, error: Exception) -> None:
        raise AssertionError(error)


@pytest.mark.parametrize(
    ("readers", "came_bytes", "doubles"),
    [
        # Of each connection: whether it has memory, is paused by this end, and has bytes to read.
        ([(True, False, False)], 0, True),
        ([(True, False, False)], 30 << 20, True),
        ([(True, False, False)], 256 << 20, False),
        ([(True, False, True)], 0, False),
        ([(True, False, True)] * 2 + [(True, False, False)] * 2, 0, False),
        ([(True, False, True)] * 1 + [(True, False, False)] * 2, 0, True),
        ([(True, False, True)] + [(False, False, False)] * 2, 0, False),
        ([(True, False, True)] + [(True, True, False)] * 2, 0, False),
        ([(True, True, False)], 0, False),
    ],
)
def test_the_budget_doubles_only_while_most_senders_are_slow_and_this_end_is_not(
    readers: list[tuple[bool, bool, bool]],
    came_bytes: int,
    doubles: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "FIRST_BYTES", 2 * K)

    async def check_after_a_second(stack: contextlib.ExitStack) -> int:
        connections = []
        for held, waits, readable in readers:
            here, there = map(stack.enter_context, socket.socketpair())
            if readable:
                there.sendall(b"x")
            connections.append(Reader(2 * K if held else 0, 7, waits, here.fileno()))
        incoming = IncomingMemory(Limits(), connections, lambda call: call())
        account, other = (incoming.budget.account(lambda: None) for _ in range(2))
        assert account.reserve(2 * K)
        assert not other.reserve(K)
        incoming._timer.cancel()
        incoming._seen_at -= 1
        connections[0].message_bytes_received += came_bytes
        incoming._check()
        return incoming.budget.budget

    with contextlib.ExitStack() as stack:
        assert asyncio.run(check_after_a_second(stack)) == (4 if doubles else 2) * K


@given(
    st.lists(st.lists(st.integers(1, 25), min_size=1, max_size=4), min_size=1, max_size=6),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_all_messages_complete_and_the_reserved_sum_is_bounded(
    plans: list[list[int]], most: int, random: object
) -> None:
    """Each connection announces and completes its messages in order, up to two at a time."""
    parties = Parties(most * K, len(plans))
    left = {account: list(plan) for account, plan in zip(parties.accounts, plans, strict=True)}
    held: dict[Reservation, list[int]] = {account: [] for account in parties.accounts}
    largest_pair = 2 * 25 * K
    while any(left.values()) or any(held.values()):
        moves = []
        for account in parties.accounts:
            if account.waits:
                continue
            if left[account] and len(held[account]) < 2:
                moves.append(("announce", account))
            if held[account]:
                moves.append(("end", account))
        assert moves, "everybody waits"
        what, account = random.choice(moves)  # type: ignore[attr-defined]
        if what == "announce":
            size = left[account].pop(0) * K
            held[account].append(size)
            account.reserve(size)
        else:
            parties.budget.release(account.complete(held[account].pop(0)))
        parties.settle()
        assert parties.budget.used <= max(most * K, 25 * K) + largest_pair
    assert (parties.budget.used, parties.budget.waiting) == (0, 0)
