"""Assets: a hook declares them by name, and its client's side finds its own and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from layers.logic import Asset, ClientSide, ClientState, Hook, LogicError, Task, Training, answer
from layers.logic.core.messages import EMPTY
from tests.logic.memory_carrier import a_logic, alone
from tests.logic.points import Points, PointsEngine

OWN = Points.of(range(3))
ASSETS = {"one": Points.of(range(10)), "two": Points.of(range(20)), "more": OWN}


@dataclass(frozen=True)
class Declaring(Hook):
    """Declares assets of these names, and notes those that its client's side finds."""

    names: tuple[str, ...]
    found: list[dict[str, object]] = field(default_factory=list, compare=False)

    @property
    def assets(self) -> Mapping[str, Asset]:
        return {name: Asset(0.1) for name in self.names}

    class Client(ClientSide):
        def receive(self, task, context):
            self.hook.found.append(dict(context.assets))
            return task

        def send(self, update, context):
            self.hook.found.append(dict(context.assets))
            return update


def train(*hooks: Hook, assets: Mapping[str, Points] = ASSETS) -> None:
    logic = a_logic(alone(0), 2, hooks=hooks)
    task = Task(1, 0, 1, Training(steps=1), np.zeros(2, np.float32), EMPTY)
    engine = PointsEngine(2)
    engine.buffers = EMPTY.copy()
    answer(task, ClientState(), engine, OWN, logic, assets)


def test_every_hook_finds_its_own_assets_from_the_first_call_to_the_last() -> None:
    first, second = Declaring(("one",)), Declaring(("two",))
    train(first, second)
    assert first.found == [{"one": ASSETS["one"]}] * 2
    assert second.found == [{"two": ASSETS["two"]}] * 2


def test_a_client_that_lacks_an_asset_says_which_and_whose_it_is() -> None:
    with pytest.raises(LogicError, match="Declaring: this client was not given the asset 'two'"):
        train(Declaring(("one", "two")), assets={"one": OWN})


def test_the_logic_has_the_assets_of_all_hooks_in_their_order() -> None:
    logic = a_logic(alone(0), hooks=[Declaring(("z", "a")), Hook(), Declaring(("m",))])
    assert list(logic.assets) == ["z", "a", "m"]


def test_a_name_that_two_hooks_declare_is_refused() -> None:
    with pytest.raises(LogicError, match="Declaring also declares an asset 'one'"):
        a_logic(alone(0), hooks=[Declaring(("one",)), Declaring(("two", "one"))])


@pytest.mark.parametrize("name", ["", "../evil", "With space", ".hidden", "a" * 65, "1st"])
def test_a_name_that_is_no_name_for_a_file_is_refused(name: str) -> None:
    with pytest.raises(LogicError, match="is not an asset's name"):
        a_logic(alone(0), hooks=[Declaring((name,))])


def test_what_is_no_asset_is_refused() -> None:
    class Wrong(Hook):
        assets = {"one": 0.1}  # noqa: RUF012

    with pytest.raises(LogicError, match=r"Wrong: asset 'one' must be an Asset, not 0\.1"):
        a_logic(alone(0), hooks=[Wrong()])


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_that_cannot_be_is_refused(share: float) -> None:
    with pytest.raises(LogicError, match="share must lie between 0 and 1"):
        Asset(share)
