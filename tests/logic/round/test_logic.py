"""A logic says at once what is wrong with its parts, and derives everything from one seed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.logic import Hook, Logic, LogicError, Training
from layers.logic.hooks.local_gradients import Clip
from layers.logic.seeds import derive
from layers.logic.selectors.uniform import Uniform
from tests.logic.memory_carrier import MemoryCarrier, a_logic, a_state, run_rounds, same_bits
from tests.logic.quadratic import bowls, layout


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"selector": "uniform"}, "'uniform' is not a selector; it must be an instance of a class"),
        ({"selector": Uniform}, "is not a selector"),
        ({"selector": Clip()}, "Clip(norm=1.0) is not a selector"),
        ({"aggregator": None}, "None is not an aggregator"),
        ({"hooks": [Clip(), "clip"]}, "'clip' is not a hook"),
        ({"hooks": [Clip]}, "is not a hook"),
        ({"hooks": Clip()}, "hooks must be a list, [Clip(norm=1.0)]"),
        ({"min_updates": -1}, "min_updates must be 0 or more, not -1"),
    ],
)
def test_a_part_that_is_none_is_named(parts, reason) -> None:
    with pytest.raises(LogicError, match=re.escape(reason)):
        Logic(layout=layout(3), **parts)


def test_a_hook_can_refuse_a_logic_before_anything_runs() -> None:
    class Demanding(Hook):
        def check(self, logic):
            if logic.min_updates < 5:
                raise LogicError("needs five updates")

    with pytest.raises(LogicError, match="needs five"):
        a_logic(Uniform(), hooks=[Demanding()])
    assert a_logic(Uniform(), hooks=[Demanding()], min_updates=5).hooks


def test_the_rate_of_a_round_is_the_schedules() -> None:
    logic = a_logic(
        Uniform(), training=Training(learning_rate=9.0), learning_rate=lambda round: 1 / round
    )
    assert [logic.training_of(round).learning_rate for round in (1, 2, 4)] == [1, 0.5, 0.25]
    assert (
        a_logic(Uniform(), training=Training(learning_rate=9.0)).training_of(4).learning_rate == 9.0
    )


def test_one_seed_gives_one_run_and_another_seed_another() -> None:
    clients = bowls(10, noise=0.5)

    def run(seed: int) -> np.ndarray:
        logic = a_logic(Uniform(0.3), seed=seed)
        return run_rounds(4, a_state(logic), MemoryCarrier(logic, clients))[0].weights

    assert same_bits(run(1), run(1))
    assert not same_bits(run(1), run(2))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**63),
            st.sampled_from("abc"),
            st.lists(st.integers(-1, 300), max_size=3),
        ),
        min_size=2,
        max_size=2,
        unique_by=repr,
    )
)
def test_a_stream_depends_on_every_argument(calls) -> None:
    (seed, purpose, numbers), (other_seed, other_purpose, other_numbers) = calls
    assert derive(seed, purpose, *numbers) != derive(other_seed, other_purpose, *other_numbers)
    assert 0 <= derive(seed, purpose, *numbers) < 2**63


def test_streams_stay_the_same_from_version_to_version() -> None:
    assert (
        derive(1, "train", 2, 3)
        == derive(np.int64(1), "train", np.int64(2), 3)
        == 8_573_780_293_393_194_795
    )


ROOT = Path(__file__).resolve().parents[3]
NORM = """
import numpy as np
from layers.logic.numeric.vectors import norm
vectors = np.random.default_rng(0).normal(size=(3, 300_000)).astype(np.float32)
print([norm(vector).hex() for vector in vectors])
"""


def test_a_norm_has_the_same_bits_for_any_number_of_threads() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", NORM],
            env={"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": "."},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "3")
    }
    assert len(told) == 1
    assert "0x" in told.pop()
