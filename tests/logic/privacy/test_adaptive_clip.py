"""The clip follows a quantile of the norms, at the price that was said."""

from __future__ import annotations

import numpy as np
import pytest

from layers.logic import LogicError
from layers.logic.core.aggregator import AGGREGATE
from layers.logic.privacy.adaptive_clip import AdaptiveClip
from layers.logic.privacy.central import Central
from tests.logic.memory_carrier import run_rounds
from tests.logic.privacy.test_central import CLIENTS, SIZE, START, logic_of, peers_of, preset_of
from tests.logic.quadratic import bowl
from tests.logic.vector_files import vectors


def test_the_clip_takes_the_steps_that_were_worked_out() -> None:
    for row in vectors("dp")["adaptive_clip"]:
        m, clip = row["expected_updates"], row["clip_0"]
        adaptive = AdaptiveClip(row["gamma"], row["rate"], row["sigma_b"], m)
        for norms, noise, at in zip(row["norms"], row["noise"], row["trajectory"], strict=True):
            assert clip == pytest.approx(at["clip_shifted"], rel=1e-9)
            bits = sum((0.5 if one <= clip else -0.5) for one in norms)
            clip = adaptive.next(clip, row["clip_0"], bits + noise)
            assert clip == pytest.approx(at["next_shifted"], rel=1e-9)


def test_update_and_bit_together_cost_what_was_worked_out() -> None:
    for row in vectors("dp")["noise_split"]:
        adaptive = AdaptiveClip(0.5, 0.2, row["sigma_b"], 100)
        assert adaptive.noise_of_update(row["z"]) == pytest.approx(row["z_delta"], rel=1e-9)


def test_too_little_noise_on_the_bits_is_refused() -> None:
    with pytest.raises(LogicError, match="bit_noise"):
        AdaptiveClip(0.5, 0.2, 0.5, 100).noise_of_update(1.0)
    given = {"clip": 0.5, "delta": 1e-3, "noise": 1.0, "quantile": 0.5}
    with pytest.raises(LogicError, match="bit_noise"):
        logic_of(preset_of(Central(**given, bit_noise=0.5)))
    with pytest.raises(LogicError, match="bit_noise"):
        logic_of(preset_of(Central(**given)))  # q N / 20 of few clients
    logic_of(preset_of(Central(**given, bit_noise=0.51)))


def clips(rounds: int, far: float, quantile: float = 0.5) -> list[float]:
    """The clips after rounds of four clients whose updates have about this norm."""
    privacy = Central(
        clip=1.0, delta=1e-3, noise=0.02, quantile=quantile, clip_rate=0.5, bit_noise=0.02
    )
    logic = logic_of(preset_of(privacy), learning_rate=lambda round: 1.0)
    target = far / np.sqrt(SIZE)
    peers = peers_of(logic, {one: bowl([target] * SIZE) for one in range(CLIENTS)})
    state, found = START, []
    for _ in range(rounds):
        state, (report,) = run_rounds(1, state, peers)
        found.append(state.memory[AGGREGATE]["clip"])
        assert report.numbers["clip"] == found[-1]
    return found


def test_the_clip_grows_for_long_updates_and_shrinks_for_short_ones() -> None:
    # b~ is 0 where all are longer, and 1 where all are shorter, but for the noise on the bits.
    assert clips(2, 100.0) == pytest.approx([np.exp(0.25), np.exp(0.5)], rel=0.02)
    assert clips(1, 0.001) == pytest.approx([np.exp(-0.25)], rel=0.02)
    assert clips(1, 100.0, quantile=0.0) == pytest.approx([1.0], rel=0.02)
