"""The limits of settings: what is refused, and the nearest values that are accepted.

A table has for each name, and each of its settings: the default, refused and accepted values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, fields
from typing import Any

import pytest

TINY = 5e-324
BELOW_0, BELOW_1, ABOVE_1 = -TINY, math.nextafter(1, 0), math.nextafter(1, 2)
LARGEST = math.nextafter(math.inf, 0)
NAN, INF = math.nan, math.inf

Table = Mapping[str, Mapping[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]]]


def check_limits(table: Table, known: Mapping[str, Any], error: type[Exception]) -> None:
    """Assert that a table has every setting of some dataclasses, and that its limits hold.

    A setting cannot be changed later, because its limits would not be checked then.
    """
    for name, make in known.items():
        assert sorted(table[name]) == sorted(one.name for one in fields(make) if one.init), name
        assert all(one.default_factory is MISSING for one in fields(make)), name
        for setting, (default, refused, accepted) in table[name].items():
            assert getattr(make(), setting) == default, (name, setting)
            with pytest.raises(FrozenInstanceError):
                setattr(make(), setting, default)
            for value in refused:
                with pytest.raises(error, match=setting):
                    make(**{setting: value})
            for value in accepted:
                assert getattr(make(**{setting: value}), setting) == value, (name, setting)
