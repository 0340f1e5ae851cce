"""However a round ends, everybody who was asked is accounted for, and the state is a good one."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import RoundReport, TooFewUpdates, Traffic, run_round
from layers.logic.core.report import ClientReport, Overhead
from tests.logic.memory_carrier import (
    InLanes,
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    run_rounds,
    same_bits,
)
from tests.logic.quadratic import bowls

CLIENTS = bowls(6)


def test_too_few_updates_says_how_many_and_leaves_the_state() -> None:
    logic = a_logic(alone(0, 1, 2), min_updates=3)
    start = a_state(logic, [1, 2, 3])
    before = start.tree()
    peers = MemoryCarrier(logic, CLIENTS, lost=[1])
    with pytest.raises(TooFewUpdates, match="round 1: 2 of the 3 updates") as caught:
        run_round(start, peers, logic)
    error = caught.value
    assert (error.got, error.need, error.report.round) == (2, 3, 1)
    assert error.report is not None
    assert error.report.of("lost") == (1,)
    assert start.tree() == before
    assert start.weights.tolist() == [1, 2, 3]


def test_two_reports_are_equal_if_the_same_happened_however_long_it_took_and_what_it_cost() -> None:
    """What each field is the other way: a field that is new must be in one of the sets."""
    client = ClientReport(3, "accepted", samples=5, steps=2, metrics={"loss": 0.5}, tasks=1)
    report = RoundReport(2, 0.1, 4, (client,), Traffic(10, 20), took_s=3.0)
    for one, costs, seen in (
        (
            report,
            {"took_s", "waited_s", "overhead", "suspended", "evaluations"},
            {"round", "learning_rate", "selected", "clients", "traffic", "numbers", "in_flight"}
            | {"others"},
        ),
        (
            client,
            {"times", "offer", "task_round", "tasks"},
            {"client", "status", "reason", "traceback", "samples", "steps", "metrics", "traffic"}
            | {"code", "peak", "counted_before", "version", "staleness", "share", "malicious"},
        ),
    ):
        assert {field.name for field in fields(one)} == costs | seen
        for name in costs | seen:
            assert (replace(one, **{name: "another"}) == one) == (name in costs), name


NOBODY = "; the selector selected no client"


@pytest.mark.parametrize(
    ("selected", "clients", "said"),
    [
        (0, (), NOBODY),
        (2, (), ""),
        (0, (ClientReport(3, "declined", "enough"),), ""),
        (0, (ClientReport(3, "lost", "cut"),), "; client 3: cut"),
        (
            2,
            (ClientReport(3, "lost", "cut"), ClientReport(1, "rejected", "bad")),
            "; client 1: bad",
        ),
    ],
)
def test_too_few_updates_says_the_first_reason_that_there_is(
    selected: int, clients: tuple[ClientReport, ...], said: str
) -> None:
    report = RoundReport(4, 0.1, selected, clients, Traffic())
    error = str(TooFewUpdates(0, 2, report))
    assert error.startswith("round 4: 0 of the 2 updates that logic.min_updates asks for were ")
    assert f"were accepted{said}; the model is unchanged" in error


def test_what_a_round_costs_besides_its_messages_adds_up() -> None:
    one = Overhead(1, 2, ("a",), ("b",), ("c",))
    other = Overhead(10, 20, ("d", "e"), ("f",), ("g",))
    assert one + other == Overhead(11, 22, ("a", "d", "e"), ("b", "f"), ("c", "g"))
    assert Traffic(1, 2) + Traffic(10, 20) == Traffic(11, 22)


def test_without_any_update_the_model_is_kept_and_the_round_advances() -> None:
    logic = a_logic(alone(0, 1), min_updates=0)
    start = a_state(logic, [1, 2, 3])
    states, reports = run_rounds(2, start, MemoryCarrier(logic, CLIENTS, lost=[0, 1]))
    assert states.round == 2
    assert same_bits(states.weights, start.weights)
    assert same_bits(states.buffers, start.buffers)
    assert states.last_accepted == {}
    assert [report.of("lost") for report in reports] == [(0, 1), (0, 1)]
    assert reports[0].loss is None


@pytest.mark.parametrize("clients", [CLIENTS, {}])
def test_a_round_that_selects_nobody_ends(clients) -> None:
    logic = a_logic(InLanes(()), min_updates=0)
    start = a_state(logic, [1, 2, 3])
    state, report = run_round(start, MemoryCarrier(logic, clients), logic)
    assert report.clients == ()
    assert state.round == 1
    assert same_bits(state.weights, start.weights)
    with pytest.raises(TooFewUpdates, match="0 of the 1"):
        run_round(start, MemoryCarrier(a_logic(InLanes(())), clients), a_logic(InLanes(())))


def test_the_report_gives_traffic_by_client_and_its_sum() -> None:
    logic = a_logic(alone(0, 1))
    _, reports = run_rounds(2, a_state(logic), MemoryCarrier(logic, CLIENTS))
    for report in reports:
        assert [client.traffic.down_bytes for client in report.clients] == [100, 100]
        assert (report.traffic.down_bytes, report.traffic.up_bytes) == (200, 20)


def test_the_reported_loss_is_weighted_by_samples() -> None:
    logic = a_logic(alone(0, 1))
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    losses = [client.metrics["loss"] for client in report.clients]
    assert report.loss == pytest.approx((losses[0] * 10 + losses[1] * 20) / 30)


@given(
    lanes=st.permutations(range(6)).flatmap(
        lambda clients: st.sets(st.integers(1, 5)).map(
            lambda cuts: tuple(
                tuple(clients[start:stop])
                for start, stop in zip(
                    [0, *sorted(cuts)], [*sorted(cuts), len(clients)], strict=True
                )
            )
        )
    ),
    order=st.permutations(range(6)),
    lost=st.sets(st.integers(0, 5)),
    silent=st.sets(st.integers(0, 5)),
    deadline=st.none() | st.integers(0, 6),
)
def test_everybody_in_the_plan_is_reported_and_who_counted_contributed(
    lanes, order, lost, silent, deadline
) -> None:
    logic = a_logic(InLanes(lanes), min_updates=0)
    start = a_state(logic)
    peers = MemoryCarrier(logic, CLIENTS, order, lost, silent, deadline=deadline)
    state, report = run_round(start, peers, logic)
    assert [c.client for c in report.clients] == [client for lane in lanes for client in lane]
    counted = set(report.of("accepted"))
    assert set(state.last_accepted) == counted
    assert all(c.reason for c in report.clients if c.status != "accepted")
    # The same as a round whose plan has only those who counted, in their lanes.
    rest = tuple(tuple(c for c in lane if c in counted) for lane in lanes)
    only = a_logic(InLanes(tuple(lane for lane in rest if lane)), min_updates=0)
    expected, _ = run_round(start, MemoryCarrier(only, CLIENTS), only)
    assert same_bits(state.weights, expected.weights)
    assert np.isfinite(state.weights).all()
