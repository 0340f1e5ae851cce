"""Every part refuses settings that mean nothing, and accepts the nearest ones that do."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from inspect import signature
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from annotated_types import Ge, Gt, Le, Lt, Predicate

from layers.compute.data.datasets import DATASETS, FEDERATED
from layers.compute.data.partitions import PARTITIONS
from layers.compute.errors import ComputeError
from layers.compute.losses import LOSSES
from layers.compute.optimisers import OPTIMISERS
from layers.compute.schedule import SCHEDULES
from layers.logic import (
    AGGREGATORS,
    ATTACKS,
    HOOKS,
    PRESETS,
    PRIVACY,
    SELECTORS,
    TRAINERS,
    LogicError,
)
from layers.logic.clock import AVAILABILITIES, DEVICES, UPLOADS

TINY = 5e-324  # the least number above 0
BELOW_1 = math.nextafter(1, 0)
LARGEST = math.nextafter(math.inf, 0)
INF = math.inf

KINDS = {
    "aggregator": AGGREGATORS,
    "attack": ATTACKS,
    "availability": AVAILABILITIES,
    "data": {**DATASETS, **FEDERATED},
    "devices": DEVICES,
    "hook": HOOKS,
    "loss": LOSSES,
    "optimiser": OPTIMISERS,
    "partition": PARTITIONS,
    "preset": PRESETS,
    "privacy": PRIVACY,
    "schedule": SCHEDULES,
    "selector": SELECTORS,
    "trainer": TRAINERS,
    "uploads": UPLOADS,
}
NOISY = {"clip": 1.0, "delta": 1e-5, "noise": 1.0}
# The settings without a default, by the kind of the parts or the name of one.
NEEDED = {
    **{"central": NOISY, "dp-ftrl": NOISY, "local": NOISY},
    "secure-sum": {"delta": 1e-5, "noise": 1.0},
    "declared": {"shape": (4,), "size": 2},
    "huggingface": {"path": "none", "features": "x", "target": "y"},
    "images": {"path": "none"},
    "table": {"target": "y"},
}
# What a limit needs of other settings, which exclude it otherwise.
WITH = {"refill_at": {"concurrency": 10}, "classes": {"labels": 0}}
# Accepted at the limit only together with settings that depend on the rest.
ALONE = {(kind, "fedaim", "threshold") for kind in ("preset", "selector")}
L1, POOLED = {"distance": "l1"}, {"reference": "pooled"}


def listed(made, setting: str) -> tuple:
    """The values that the annotation of a setting lists, if it is a Literal."""
    hint = get_type_hints(made)[setting]
    return get_args(hint) if get_origin(hint) is Literal else ()


def beyond(limit: Any, kind: type) -> tuple[Any, Any]:
    """The nearest value that a limit refuses, and the nearest that it accepts."""
    step = {int: lambda x, to: x + (1 if to > x else -1), float: math.nextafter}[kind]
    match limit:
        case Ge(ge=x):
            return step(x, -INF), x
        case Gt(gt=x):
            return x, step(x, INF)
        case Le(le=x):
            return step(x, INF), x
        case Lt(lt=x):
            return x, step(x, -INF)
        case Predicate():
            return INF, LARGEST
    raise AssertionError(f"{limit} has no test")


def limited(hint: Any) -> tuple[type, tuple[Any, ...]] | None:
    """The type of a number and its limits; None: it has none."""
    for one in (hint, *(get_args(hint) if get_origin(hint) in (Union, UnionType) else ())):
        if get_origin(one) is Annotated:
            return get_args(one)[0], get_args(one)[1:]
    return None


LIMITS = [
    pytest.param(kind, name, setting, *found, id=f"{kind}-{name}-{setting}")
    for kind, parts in KINDS.items()
    for name, made in parts.items()
    for setting, hint in get_type_hints(made, include_extras=True).items()
    if setting in signature(made).parameters and (found := limited(hint))
]


# Settings that can be had alone or together only: what is refused, and what is next to it.
TOGETHER = [
    ("hook", "quantise", {"up": False, "down": False}, {"up": False, "down": True}),
    ("hook", "selective-sgd", {"epsilon": TINY}, {"epsilon": TINY, "choice": "random"}),
    (
        "hook",
        "selective-sgd",
        {"epsilon": 1.0, "choice": "random", "clip": None},
        {"epsilon": LARGEST, "choice": "random", "clip": LARGEST},
    ),
    (
        "hook",
        "selective-sgd",
        {"epsilon": 1.0, "choice": "random", "clip": INF},
        {"epsilon": 1.0, "choice": "random", "clip": 1.0},
    ),
    ("hook", "stragglers", {"share": 1.0, "drop": True}, {"share": BELOW_1, "drop": True}),
    ("hook", "stc", {"p_up": None, "p_down": None}, {"p_up": None}),
    ("hook", "stc", {"p_up": None, "p_down": None}, {"p_down": None}),
    ("hook", "stc", {"ternary": False, "literal": True}, {"ternary": False}),
    (
        "privacy",
        "central",
        {"clip": 1.0, "delta": 0.1},
        {"clip": 1.0, "delta": 0.1, "epsilon": 1.0},
    ),
    (
        "privacy",
        "dp-ftrl",
        {"clip": 1.0, "delta": 0.1},
        {"clip": 1.0, "delta": 0.1, "noise": 1.0},
    ),
    ("selector", "fedaim", {"reveal": "distance", "reference": "pooled"}, {"reveal": "distance"}),
    ("selector", "fedaim", L1 | {"threshold": 1.81}, L1 | {"threshold": 1.8}),
    ("selector", "fedaim", L1 | {"classes": 2}, L1 | {"classes": 2, "threshold": 1.0}),
    ("selector", "fedaim", POOLED | {"threshold": 9.1}, POOLED | {"threshold": 9.0}),
    ("selector", "fedaim", L1 | POOLED | {"threshold": 2.1}, L1 | POOLED | {"threshold": 2.0}),
    ("selector", "online-kp", {"L0": 1.0}, {"L0": 1.0, "U": 1.0}),
    ("selector", "online-kp", {"U": 1.0}, {"L0": TINY, "U": 1.0}),
    ("selector", "online-kp", {"L0": 0.0, "U": 1.0}, {"L0": TINY, "U": TINY}),
    ("selector", "online-kp", {"L0": 1.0, "U": BELOW_1}, {"L0": 1.0, "U": LARGEST}),
    ("selector", "online-kp", {"L0": 1.0, "U": INF}, {"L0": BELOW_1, "U": 1.0}),
    ("selector", "power-of-choice", {"count": 3, "candidates": 2}, {"count": 3, "candidates": 3}),
]


@pytest.mark.parametrize(("kind", "name", "setting", "number", "limits"), LIMITS)
def test_a_setting_is_refused_beyond_its_limits_and_accepted_at_them(
    kind, name, setting, number, limits
) -> None:
    make, given = KINDS[kind][name], NEEDED.get(kind, {}) | NEEDED.get(name, {})
    hints = signature(make).parameters
    for limit in limits:
        refused, accepted = beyond(limit, number)
        for wrong in (refused, math.nan, "text"):
            with pytest.raises((LogicError, ComputeError), match=f"{setting} must be"):
                make(**given | {setting: wrong})
        if (kind, name, setting) not in ALONE:
            needs = {name: one for name, one in WITH.get(setting, {}).items() if name in hints}
            part = make(**given | needs | {setting: accepted})
            if kind != "preset":  # whose settings are those of its parts
                with pytest.raises(FrozenInstanceError):
                    setattr(part, setting, accepted)


@pytest.mark.parametrize(
    ("kind", "name", "setting", "values"),
    [
        pytest.param(kind, name, setting, listed(made, setting), id=f"{kind}-{name}-{setting}")
        for kind, all_made in KINDS.items()
        for name, made in all_made.items()
        for setting in get_type_hints(made)
        if listed(made, setting)
    ],
)
def test_a_setting_that_lists_its_values_accepts_these_alone(kind, name, setting, values) -> None:
    make = KINDS[kind][name]
    needed = NEEDED.get(kind, {}) | NEEDED.get(name, {})
    for wrong in (f"{values[0]}x", None, True, [values[0]]):
        with pytest.raises((LogicError, ComputeError), match=f"{setting} must be {values[0]!r}"):
            make(**needed | {setting: wrong})
    for value in values:
        make(**needed | {setting: value})


@pytest.mark.parametrize(("kind", "name", "refused", "accepted"), TOGETHER)
def test_settings_that_exclude_each_other_are_refused_together(
    kind, name, refused, accepted
) -> None:
    make = KINDS[kind][name]
    with pytest.raises(LogicError):
        make(**refused)
    made = make(**accepted)
    assert {key: getattr(made, key) for key in accepted} == accepted
