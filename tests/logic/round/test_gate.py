"""What is no sound update of this round is refused with a reason, and changes no bit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import Hook, Rejected, ServerSide, run_round
from layers.logic.errors import PartFailed
from layers.logic.hooks.compressors import TopK
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    lying,
    of_client,
    same_bits,
)
from tests.logic.quadratic import bowls

CLIENTS = bowls(3)
WEIGHTS = (0.5, -2.0, 1e-3)

BAD_VECTORS = {
    "nan": ([math.nan, 1, 1], np.float32, "not finite"),
    "inf": ([1, math.inf, 1], np.float32, "not finite"),
    "minus inf": ([1, -math.inf, 1], np.float32, "not finite"),
    "both infs": ([math.inf, -math.inf, math.nan], np.float32, "3 values not finite"),
    "too long": ([1, 1, 1, 1], np.float32, "shape (4,)"),
    "too short": ([1, 1], np.float32, "shape (2,)"),
    "empty": ([], np.float32, "shape (0,)"),
    "a matrix": ([[1, 1, 1]], np.float32, "shape (1, 3)"),
    "float64": ([1, 1, 1], np.float64, "float64"),
    "whole numbers": ([1, 1, 1], np.int32, "int32"),
    "half precision": ([1, 1, 1], np.float16, "float16"),
}
LIES = {
    **{
        f"a delta: {name}": ({"delta": np.array(values, dtype)}, reason)
        for name, (values, dtype, reason) in BAD_VECTORS.items()
    },
    "a buffer that is NaN": ({"buffers": np.array([math.nan], np.float32)}, "buffers"),
    "a buffer too many": ({"buffers": np.zeros(2, np.float32)}, "buffers of shape (2,)"),
    "an earlier round": ({"round": 0}, "round 0 in round 1"),
    "a later round": ({"round": 2}, "round 2 in round 1"),
    "no samples": ({"samples": 0}, "sample count of 0"),
    "fewer than no samples": ({"samples": -5}, "sample count of -5"),
    "NaN samples": ({"samples": math.nan}, "sample count of nan"),
    "infinitely many samples": ({"samples": math.inf}, "sample count of inf"),
    "truly samples": ({"samples": True}, "sample count of True"),
    "samples by word": ({"samples": "many"}, "sample count of many"),
    "half a sample": ({"samples": 0.5}, "sample count of 0.5"),
    "samples that overflow every sum": ({"samples": 1e308}, "sample count"),
    "samples beyond every float": ({"samples": 10**400}, "sample count"),
    "fewer than no steps": ({"steps": -1}, "local steps of -1"),
    "NaN steps": ({"steps": math.nan}, "local steps of nan"),
    "a metric by word": ({"metrics": {"loss": "low"}}, "'loss' of low"),
    "a metric that is NaN": ({"metrics": {"loss": math.nan}}, "'loss' of nan"),
    "metrics that fill records": ({"metrics": {f"m{i}": 1.0 for i in range(101)}}, "101 metrics"),
    "a metric with a book for a name": ({"metrics": {"m" * 81: 1.0}}, "than 80 recorded"),
    "a metric with faces for a name": ({"metrics": {"\N{GRINNING FACE}" * 7: 1.0}}, "80 recorded"),
    "a metric that is infinite": ({"metrics": {"loss": -math.inf}}, "'loss' of -inf"),
    "a slot of no hook": ({"slots": {"0:Nobody": {"x": b""}}}, "'0:Nobody'"),
    "bytes in a slot of no hook": ({"slots": {"failure": {"x": bytes(2 << 20)}}}, "'failure'"),
}


@pytest.mark.parametrize(
    "values",
    [
        {"metrics": {f"m{i}": 1.0 for i in range(100)}},
        {"metrics": {"m" * 80: 1e200}},
        {"metrics": {"loss": -1e200}},
        {"samples": 1, "steps": 0},
    ],
)
def test_an_update_at_a_bound_counts(values) -> None:
    logic = a_logic(alone(0, 1, 2))
    peers = MemoryCarrier(logic, CLIENTS, forge=lying(1, **values))
    _, report = run_round(a_state(logic, WEIGHTS), peers, logic)
    assert report.of("accepted") == (0, 1, 2)


def test_a_slot_with_more_bytes_than_the_model_allows_is_refused() -> None:
    def forge(update):
        (key,) = update.slots
        return [replace(update, slots={key: {"x": bytes(2 << 20)}})]

    logic = a_logic(alone(0, 1), hooks=[TopK()])
    peers = MemoryCarrier(logic, CLIENTS, forge=of_client(1, forge))
    _, report = run_round(a_state(logic, WEIGHTS), peers, logic)
    assert report.of("rejected") == (1,)
    assert "slots of 2097153 bytes" in report.clients[1].reason


@pytest.mark.parametrize("name", LIES)
def test_a_bad_update_is_refused_and_the_others_count(name) -> None:
    values, reason = LIES[name]
    logic = a_logic(alone(0, 1, 2))
    peers = MemoryCarrier(logic, CLIENTS, forge=lying(1, **values))
    state, report = run_round(a_state(logic, WEIGHTS), peers, logic)
    assert report.of("accepted") == (0, 2)
    (refused,) = (client for client in report.clients if client.status == "rejected")
    assert refused.client == 1
    assert reason in refused.reason
    assert 1 not in state.last_accepted
    without = a_logic(alone(0, 2))
    expected, _ = run_round(a_state(logic, WEIGHTS), MemoryCarrier(without, CLIENTS), without)
    assert same_bits(state.weights, expected.weights)
    assert same_bits(state.buffers, expected.buffers)


@pytest.mark.parametrize("name", ["a delta: nan", "a buffer too many", "an earlier round"])
def test_a_bad_update_alone_leaves_every_bit_of_the_model(name) -> None:
    logic = a_logic(alone(1), min_updates=0)
    start = a_state(logic, WEIGHTS)
    peers = MemoryCarrier(logic, CLIENTS, forge=lying(1, **LIES[name][0]))
    state, report = run_round(start, peers, logic)
    assert report.of("rejected") == (1,)
    assert same_bits(state.weights, start.weights)
    assert same_bits(state.buffers, start.buffers)


@pytest.mark.parametrize("value", [3e38, -3e38])
def test_a_finite_update_passes_even_if_its_sum_overflows(value) -> None:
    logic = a_logic(alone(1))
    delta = np.full(3, value, np.float32)
    state, _ = run_round(
        a_state(logic), MemoryCarrier(logic, CLIENTS, forge=lying(1, delta=delta)), logic
    )
    assert same_bits(state.weights, delta)


def test_a_finite_update_that_makes_an_infinite_model_is_refused() -> None:
    logic = a_logic(alone(1), min_updates=0)
    start = a_state(logic, [3e38, 0, 0])
    peers = MemoryCarrier(logic, CLIENTS, forge=lying(1, delta=np.array([1e38, 0, 0], np.float32)))
    state, report = run_round(start, peers, logic)
    assert "makes a model that is not" in report.clients[0].reason
    assert same_bits(state.weights, start.weights)


def test_a_second_update_is_refused_and_the_first_counts_once() -> None:
    logic = a_logic(alone(0, 1))
    twice = of_client(0, lambda update: [update, replace(update, samples=999)])
    state, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, forge=twice), logic)
    honest, _ = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert report.of("accepted") == (0, 1)
    assert [(c.client, c.status, c.reason) for c in report.clients[2:]] == [
        (0, "rejected", "another update of a client accepted in this round")
    ]
    assert same_bits(state.weights, honest.weights)


def test_an_update_of_a_client_that_was_not_asked_is_refused() -> None:
    logic = a_logic(alone(0, 1))
    also = of_client(
        0, lambda update: [update, replace(update, client=2), replace(update, client=77)]
    )
    state, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, forge=also), logic)
    assert [(c.client, c.status, c.reason) for c in report.clients[2:]] == [
        (2, "rejected", "not asked in this round"),
        (77, "rejected", "not asked in this round"),
    ]
    assert set(state.last_accepted) == {0, 1}


def test_an_update_in_the_name_of_another_client_does_not_count_for_its_sender() -> None:
    logic = a_logic(alone(0, 1))
    start = a_state(logic)
    as_stranger = lying(1, client=2)
    state, report = run_round(start, MemoryCarrier(logic, CLIENTS, forge=as_stranger), logic)
    assert [(c.client, c.status) for c in report.clients] == [
        (0, "accepted"),
        (1, "lost"),
        (2, "rejected"),
    ]
    only = a_logic(alone(0))
    expected, _ = run_round(start, MemoryCarrier(only, CLIENTS), only)
    assert same_bits(state.weights, expected.weights)


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        (np.zeros(1 << 17), False),
        (np.zeros(1 << 18), True),
        (bytes(2 << 20), True),
        ("\N{GRINNING FACE}" * (1 << 19), True),
    ],
)
def test_a_hook_may_have_a_slot_and_not_one_far_larger_than_the_model(value, is_refused) -> None:
    class Mine(Hook):
        pass

    logic = a_logic(alone(0, 1), hooks=[Mine()])
    forged = lying(1, slots={"0:Mine": {"x": value}})
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, forge=forged), logic)
    assert report.of("rejected") == ((1,) if is_refused else ())


def test_a_hook_can_refuse_what_it_cannot_decode() -> None:

    class Codec(Hook):
        class Server(ServerSide):
            def receive(self, update, context):
                if update.client == 1:
                    raise Rejected("no codebook")
                return update

    logic = a_logic(alone(0, 1), hooks=[Codec()])
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
    assert [(c.status, c.reason) for c in report.clients] == [
        ("accepted", ""),
        ("rejected", "no codebook"),
    ]


@given(
    bits=st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3),
    samples=st.one_of(st.integers(), st.floats(), st.booleans()),
    steps=st.one_of(st.integers(), st.floats()),
)
def test_whatever_arrives_the_model_stays_finite_or_unchanged(bits, samples, steps) -> None:
    delta = np.array(bits, np.uint32).view(np.float32)
    logic = a_logic(alone(1), min_updates=0)
    start = a_state(logic, WEIGHTS)
    forge = lying(1, delta=delta, samples=samples, steps=steps)
    state, report = run_round(start, MemoryCarrier(logic, CLIENTS, forge=forge), logic)
    assert np.isfinite(state.weights).all()
    if report.of("accepted"):
        np.testing.assert_array_equal(state.weights, start.weights + delta)
    else:
        assert report.of("rejected") == (1,)
        assert same_bits(state.weights, np.array(WEIGHTS, np.float32))


class Careless(Hook):
    """Takes what its other half says for granted."""

    class Server(ServerSide):
        def receive(self, update, context):
            if update.client == 1:
                context.slot["what nobody sent"]
            return update


def test_what_a_server_half_stumbles_over_is_refused_where_clients_are_foreign() -> None:
    logic = a_logic(alone(0, 1, 2), hooks=[Careless()])
    _, report = run_round(a_state(logic), MemoryCarrier(logic, CLIENTS, untrusted=True), logic)
    assert report.of("accepted") == (0, 2)
    (refused,) = [client for client in report.clients if client.status == "rejected"]
    assert "KeyError" in refused.reason
    assert "what nobody sent" in refused.traceback


def test_in_a_simulation_the_error_of_a_server_half_comes_out() -> None:
    logic = a_logic(alone(0, 1, 2), hooks=[Careless()])
    said = r"round 1, client 1: Careless\.Server\.receive failed: KeyError: 'what nobody sent'"
    with pytest.raises(PartFailed, match=said):
        run_round(a_state(logic), MemoryCarrier(logic, CLIENTS), logic)
