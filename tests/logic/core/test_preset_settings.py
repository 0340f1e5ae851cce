"""A preset takes the settings of its parts: each arrives, or is fixed for a reason."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest

from layers.logic import PRESETS, LogicError, Preset
from layers.logic.aggregators.mean import Mean
from layers.logic.algorithms.astraea import Rebalance
from layers.logic.algorithms.fedsso import Stratified
from layers.logic.core.preset import parts_of, settings_of_parts
from layers.logic.hooks.compressors import Stc
from layers.logic.hooks.local_gradients import FedProx
from layers.logic.hooks.server_optimisers import FedAvgM
from layers.logic.selectors.uniform import RoundRobin, Uniform
from layers.settings import hints_of

FIXED = {
    "astraea": {"above"},
    "clustered": {"weights"},
    "fedasync": {"buffer"},
    "fedsgd": {"fraction", "count", "weights"},
    "selective-sgd": {"fraction"},
}
OWN = {
    "astraea": {"rebalance", "augment"},
    "pfedme": {"beta"},
    "fednova": {"mu"},
    "fedsgd": {"reply", "order"},
    "fedsso": {"mean"},
    "projected-stc": {"p"},
    "stc": {"p"},
}
# Some settings mean nothing without another one.
TOGETHER: dict[str, dict[str, Any]] = {
    "L0": {"U": 9.0},
    "U": {"L0": 0.001},
    "pacer_s": {"preferred_s": 9.0},
    "up": {"down": True},
    "epsilon": {"choice": "random"},
}


def settings_of(part: Any) -> list[str]:
    return [one.name for one in fields(part) if one.init]


def taken() -> Iterator[Any]:
    for name, make in PRESETS.items():
        for part in parts_of(make()):
            for setting in settings_of(part):
                if setting not in FIXED.get(name, set()) | OWN.get(name, set()):
                    yield pytest.param(name, type(part), setting, id=f"{name}-{setting}")


def another(owner: type, setting: str, usual: Any) -> Iterator[Any]:
    """Other values of the setting's type than the usual one."""
    hint = typing.get_type_hints(owner)[setting]  # without the limits
    kinds = typing.get_args(hint) if typing.get_origin(hint) is not typing.Literal else (hint,)
    for kind in kinds or (hint,):
        if typing.get_origin(kind) is typing.Literal:
            values: tuple[Any, ...] = typing.get_args(kind)
        elif kind is bool:
            values = (True, False)
        else:
            values = {int: (2, 3), float: (0.5, 0.25, 3.0), type(None): ()}[kind]
        yield from (value for value in values if value != usual)


def first_accepted(make, setting: str, values: Iterator[Any], more) -> tuple[Any, Preset]:
    """Return the first of the values that the part does not refuse, and the preset with it."""
    for value in values:
        try:
            return value, make(**{setting: value, **more})
        except LogicError:
            continue
    raise AssertionError(f"{setting} was refused with every value")


@pytest.mark.parametrize(("name", "owner", "setting"), list(taken()))
def test_every_setting_of_a_part_arrives_through_the_preset(name, owner, setting) -> None:
    make = PRESETS[name]
    parameter = inspect.signature(make).parameters[setting]
    usual = next(part for part in parts_of(make()) if type(part) is owner)
    assert parameter.default == getattr(usual, setting)
    assert parameter.annotation == hints_of(owner)[setting]
    more = TOGETHER.get(setting, {})
    value, changed = first_accepted(make, setting, another(owner, setting, parameter.default), more)
    (part,) = (part for part in parts_of(changed) if type(part) is owner)
    for one in settings_of(part):
        expected = {setting: value, **more}.get(one, getattr(usual, one))
        assert getattr(part, one) == expected
    others = [part for part in parts_of(changed) if type(part) is not owner]
    assert others == [part for part in parts_of(make()) if type(part) is not owner]


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_setting_that_a_preset_does_not_take_has_a_reason_and_is_refused(name) -> None:
    make: Any = PRESETS[name]
    assert set(make.fixed) == FIXED.get(name, set())
    for setting, reason in make.fixed.items():
        assert setting not in inspect.signature(make).parameters
        assert f"It does not take `{setting}`: {reason}." in make.__doc__
        with pytest.raises(LogicError, match=f"does not take {setting}: "):
            make(**{setting: 1})


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_has_no_other_settings_than_its_own_and_those_of_its_parts(name) -> None:
    of_parts = {setting for part in parts_of(PRESETS[name]()) for setting in settings_of(part)}
    own = OWN.get(name, set())
    taken = set(inspect.signature(PRESETS[name]).parameters)
    assert taken == own | (of_parts - FIXED.get(name, set()))
    documentation = inspect.getdoc(PRESETS[name]) or ""
    assert [setting for setting in taken if f"\n    {setting}: " not in documentation] == []


def test_a_setting_of_the_preset_itself_reaches_each_part_that_it_concerns() -> None:
    made = PRESETS["astraea"](rebalance=2.0, gamma=3)
    assert [getattr(part, "above", None) for part in parts_of(made)] == [2.0, None, 2.0]
    assert made.hooks == (Rebalance(2.0),)
    assert PRESETS["fedsso"](mean="literal", beta=0.5).aggregator == Stratified("literal")
    assert PRESETS["fednova"](mu=0.5).hooks == (FedProx(0.5),)
    assert PRESETS["stc"](p=0.5).hooks == (Stc(0.5, 0.5),)
    assert PRESETS["stc"](p=0.5, p_down=None).hooks == (Stc(0.5, None),)
    assert PRESETS["fedsgd"](order="round-robin").selector == RoundRobin(count=1)


def test_a_setting_of_a_part_that_is_not_there_is_refused_by_name() -> None:
    assert PRESETS["fedsso"](weights="uniform").aggregator == Mean("uniform")
    with pytest.raises(LogicError, match=r"fedsso is made of FedSSO, Stratified .* has weights"):
        PRESETS["fedsso"](weights="uniform", mean="stratified")


def test_an_unknown_setting_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match="no setting 'fractoin'; it has fraction, count, weights"):
        PRESETS["fedavg"](fractoin=0.5)


def test_a_setting_of_two_parts_must_be_settled_where_the_preset_is_defined() -> None:
    def doubled() -> Preset:
        return Preset(Uniform(), Mean(), (FedAvgM(), FedAvgM()))

    with pytest.raises(TypeError, match="FedAvgM and FedAvgM both have a setting server_learning"):
        settings_of_parts()(doubled)
    with pytest.raises(TypeError, match=r"fixes \['beta'\], which none of its parts has"):
        settings_of_parts(fixed={"beta": "why"})(PRESETS["fedavg"])


def test_a_preset_of_the_users_own_takes_its_parts_settings_in_the_same_way() -> None:
    @dataclass(frozen=True)
    class Short(FedProx):
        """A hook.

        Attributes:
            mu: how much.
                And more.
        """

    @settings_of_parts()
    def mine(count: int = 3) -> Preset:
        """My own."""
        return Preset(Uniform(count=count), Mean(), (Short(),))

    assert mine(mu=0.5, weights="uniform") == Preset(
        Uniform(count=3), Mean("uniform"), (Short(0.5),)
    )
    assert inspect.getdoc(mine).endswith("    mu: how much.\n        And more.")  # type: ignore[union-attr]
    assert mine(5).selector == Uniform(count=5)
