"""A setting is text, a number, a list or a mapping that a file can hold; all else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmx import Hook
from fedmx.components.component import plain
from layers.logic.hooks.compressors import Stc


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), 0.5, True, None, "text", {"a": [1]}])
def test_what_a_file_can_hold_stays_as_it_is(value: Any) -> None:
    assert plain(value) == value


def test_numbers_of_numpy_and_paths_become_plain_ones() -> None:
    given = ("text", Path("a/b"), np.float32(0.5), np.int8(3), {"a": {"b": (1, 2)}})
    assert plain(given) == ["text", "a/b", 0.5, 3, {"a": {"b": [1, 2]}}]
    (made,) = plain([Stc()])
    assert made["name"].endswith(":Stc")
    assert made["p_up"] == Stc().p_up


def test_what_no_file_can_hold_is_named() -> None:
    class OfAFunction(Hook):
        pass

    for value, part in (
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (float("nan"), "NaN"),
        ("\ud800", "'\\ud800'"),
        (np.zeros(1), "ndarray"),
        ({"a": {1: 2}}, "keys"),
        ({1}, "set"),
        (nested(200), "deep"),
        ([OfAFunction()], "OfAFunction"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            plain(value)
        assert part in str(caught.value)
