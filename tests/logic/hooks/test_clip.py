"""Clipping bounds the norm of each step's gradient and keeps its direction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from layers.logic import HOOKS, LogicError, Training, run_round
from layers.logic.hooks.local_gradients import Clip
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, alone, same_bits
from tests.logic.quadratic import bowl

vectors = arrays(
    np.float32,
    st.integers(1, 50),
    elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
)


def clipped(gradient: np.ndarray, norm: float) -> np.ndarray:
    result = gradient.copy()
    Clip(norm).client().gradient(result, np.zeros_like(gradient), None)
    return result


@given(gradient=vectors, limit=st.floats(1e-3, 1e6))
def test_the_norm_is_bounded_and_the_direction_kept(gradient, limit) -> None:
    result = clipped(gradient, limit)
    before = np.linalg.norm(gradient.astype(np.float64))
    after = np.linalg.norm(result.astype(np.float64))
    assert after <= limit * (1 + 1e-5)
    if before <= limit:
        assert same_bits(result, gradient)
    else:
        assert after >= limit * (1 - 1e-5)
        assume(before < 2.0**60 * limit)  # beyond, small parts vanish in float32
        np.testing.assert_allclose(
            result, gradient.astype(np.float64) * (limit / before), rtol=1e-5, atol=1e-30
        )


def test_every_step_is_clipped() -> None:
    far = bowl([300.0, -400.0], n=10)
    logic = a_logic(
        alone(0), size=2, hooks=[Clip(2.0)], training=Training(steps=5, learning_rate=0.1)
    )
    state, _ = run_round(a_state(logic), MemoryCarrier(logic, {0: far}), logic)
    np.testing.assert_allclose(state.weights, [5 * 0.1 * 1.2, -5 * 0.1 * 1.6], rtol=1e-5)


@pytest.mark.parametrize("norm", [0, -1.0, float("nan")])
def test_a_norm_that_is_not_positive_is_refused(norm) -> None:
    with pytest.raises(LogicError, match="greater than 0"):
        HOOKS["clip"](norm=norm)
