"""Over-selection: more are asked than are needed, and the first to come back count."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from layers.logic import LogicError, Selector, run_round
from layers.logic.selectors.uniform import RoundRobin, Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone
from tests.logic.quadratic import bowls

CLIENTS = bowls(10)


@pytest.mark.parametrize("lost", [(), (9,)])
def test_the_first_that_are_needed_count_and_the_others_are_told_to_leave_off(lost) -> None:
    logic = a_logic(RoundRobin(count=5), over_select=2.0)
    peers = MemoryCarrier(logic, CLIENTS, order=(9, 3, 7, 1, 5, 0, 2, 4, 6, 8), lost=lost)
    _, report = run_round(a_state(logic), peers, logic)
    first = {3, 7, 1, 5, *((0,) if lost else (9,))}
    assert set(report.of("accepted")) == first
    assert set(report.of("declined")) == set(range(10)) - first - set(lost)
    assert {v.client for v in peers.verdicts if not v.granted} == set(report.of("declined"))


@dataclass(frozen=True)
class Halves(Selector):
    """Two groups, of which `b` closes with its first two; `a` has a quota, or waits for all."""

    quota: int | None = None

    def run(self, round):
        for client in range(10):
            round.train(client, group="ab"[client // 5])
        yield from round.until({"b": 2} if self.quota is None else {"a": self.quota, "b": 2})


@pytest.mark.parametrize(
    ("quota", "lost", "accepted", "declined"),
    [
        (1, (), {9, 7, 4}, {0, 1, 2, 3, 5, 6, 8}),
        (None, (), {9, 7, 4, 3, 2, 1, 0}, {5, 6, 8}),
        (1, (9,), {7, 5, 4}, {0, 1, 2, 3, 6, 8}),
        (1, (0, 1, 2, 3, 4), {9, 7}, {5, 6, 8}),
    ],
    ids=["both", "one", "lost", "a group is lost"],
)
def test_each_group_closes_with_its_own_quota(quota, lost, accepted, declined) -> None:
    logic = a_logic(Halves(quota))
    peers = MemoryCarrier(logic, CLIENTS, order=(9, 7, 5, 8, 6, 4, 3, 2, 1, 0), lost=lost)
    _, report = run_round(a_state(logic), peers, logic)
    assert set(report.of("accepted")) == accepted
    assert set(report.of("declined")) == declined
    assert {v.client for v in peers.verdicts if not v.granted} == declined


@pytest.mark.parametrize(("count", "over", "asked"), [(3, 1.3, 4), (1, 1.3, 2), (10, 1.3, 10)])
def test_more_are_asked_than_are_needed_as_far_as_there_are_more(count, over, asked) -> None:
    logic = a_logic(Uniform(count=count), over_select=over)
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert (report.selected, len(report.of("accepted"))) == (asked, count)


def test_a_plan_for_certain_clients_has_no_reserve_and_all_of_them_count() -> None:
    logic = a_logic(alone(1, 2, 3), over_select=3.0)
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert report.of("accepted") == (1, 2, 3)
    with pytest.raises(LogicError, match="over_select must be 1 or more"):
        a_logic(alone(1), over_select=float("nan"))
