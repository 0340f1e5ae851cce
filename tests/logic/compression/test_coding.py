"""Hooks that encode updates: their combinations, and forged payloads on the server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.logic import Hook, Training, run_round
from layers.logic.catalogue import HOOKS, PRESETS
from layers.logic.core.declaration import Trait
from layers.logic.hooks.compressors import Stc
from layers.logic.hooks.local_gradients import GradientReply
from tests.logic.given_updates import Given, peers_of
from tests.logic.memory_carrier import (
    MemoryCarrier,
    a_logic,
    a_state,
    alone,
    lying,
    of_client,
    run_rounds,
)
from tests.logic.quadratic import bowl, bowls

ENCODERS = {
    name: make()
    for name, make in HOOKS.items()
    if Trait.ENCODES_UPDATE in make().provides and make is not GradientReply
}
each = pytest.mark.parametrize("hook", ENCODERS.values(), ids=ENCODERS)
NAN = np.full(3, np.nan, np.float32)


@pytest.mark.parametrize("given_first", [True, False])
def test_a_codec_encodes_the_update_after_all_other_hooks(
    given_first,
) -> None:
    given = Given({(1, 0): np.array([0, 4, 0], np.float32)})
    hooks = [given, Stc(0.1, None)] if given_first else [Stc(0.1, None), given]
    logic = a_logic(alone(0), hooks=hooks)
    state, _ = run_rounds(1, a_state(logic), MemoryCarrier(logic, bowls(1)))
    assert state.weights.tolist() == [0, 4, 0]


def sent_by_one(hook: Hook, change):
    """Return the report of a round in which client 1's slot was changed."""
    key = f"0:{type(hook).__name__}"
    logic = a_logic(alone(0, 1), hooks=[hook])

    def forge(update):
        slot = change(dict(update.slots[key]))
        return [replace(update, slots={key: slot} if slot is not None else {})]

    peers = MemoryCarrier(logic, bowls(2), forge=of_client(1, forge))
    return run_round(a_state(logic), peers, logic)


@each
@given(st.binary(max_size=60))
@settings(max_examples=40, deadline=None)
def test_any_bytes_are_accepted_or_rejected_and_other_updates_are_accepted(hook, payload) -> None:
    state, report = sent_by_one(
        hook, lambda slot: {**slot, "update": np.frombuffer(payload, np.uint8)}
    )
    assert 0 in report.of("accepted")
    assert report.of("accepted") + report.of("rejected") in ((0, 1), (1, 0))
    assert np.isfinite(state.weights).all()


@each
@pytest.mark.parametrize(
    "slot",
    [None, {}, {"update": None}, {"update": b"123"}, {"update": np.zeros(3)}, {"update": "x"}],
)
def test_an_update_without_a_payload_is_rejected(hook, slot) -> None:
    _, report = sent_by_one(hook, lambda _: slot)
    assert report.of("rejected") == (1,)
    assert "'update'" in report.clients[1].reason


@each
def test_an_update_that_is_not_finite_needs_no_payload_to_be_rejected_as_one(hook) -> None:
    logic = a_logic(alone(0, 1), hooks=[hook])
    peers = MemoryCarrier(logic, bowls(2), forge=lying(1, delta=NAN, slots={}))
    _, report = run_round(a_state(logic), peers, logic)
    assert report.of("rejected") == (1,)
    assert report.clients[1].code == "cannot-train"


@each
def test_a_diverged_client_is_rejected_and_continues_from_its_last_state(hook) -> None:
    rng = np.random.default_rng(1)
    good = rng.normal(size=3).astype(np.float32)
    deltas = {(1, 0): good, (1, 1): good, (2, 0): good, (2, 1): NAN, (3, 0): good, (3, 1): good}
    peers = peers_of(hook, deltas, [3])
    state, reports = run_rounds(3, a_state(peers.logic), peers)
    assert [report.of("accepted") for report in reports] == [(0, 1), (0,), (0, 1)]
    assert "cannot train" in reports[1].clients[1].reason
    assert np.isfinite(state.weights).all()


@pytest.mark.parametrize("name", ["stc", "top-k", "dgc", "signsgd", "quantised", "selective-sgd"])
def test_every_compressing_preset_learns(name) -> None:
    size = 60
    target = np.random.default_rng(4).normal(size=size)
    clients = {client: bowl(target) for client in range(4)}
    settings_ = {"clip": None} if name == "selective-sgd" else {"fraction": 0.5}
    if name in ("stc", "top-k", "dgc"):
        settings_["p"] = 0.2
    preset = PRESETS[name](**settings_)
    logic = a_logic(
        preset.selector,
        size=size,
        aggregator=preset.aggregator,
        hooks=preset.hooks,
        training=Training(learning_rate=0.05),
    )
    peers = MemoryCarrier(logic, clients)
    state, _ = run_rounds(40, a_state(logic), peers)
    assert np.linalg.norm(state.weights - target) < 0.8 * np.linalg.norm(target)
