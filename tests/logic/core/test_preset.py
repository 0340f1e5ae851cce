"""A preset's hooks together with a user's own."""

from __future__ import annotations

from layers.logic import PRESETS, Hook
from layers.logic.hooks.clip import Clip
from layers.logic.hooks.stc import Stc
from tests.logic.memory_peers import a_logic

CLIP, STC = Clip(1.0), Stc()


def names(*hooks: Hook) -> list[str]:
    return [type(hook).__name__ for hook in hooks]


def test_a_users_own_hooks_come_first() -> None:
    assert names(*PRESETS["stc"]().joined([CLIP])) == ["Clip", "Stc"]
    assert names(*PRESETS["scaffold"]().joined([CLIP])) == ["Clip", "Scaffold"]


def test_what_looks_at_updates_comes_before_what_gives_them_another_form() -> None:
    preset = PRESETS["csfedavg"]()
    hooks = preset.joined([CLIP, STC])
    assert names(*hooks) == ["Clip", "Divergence", "Stc"]
    logic = a_logic(preset.selector, aggregator=preset.aggregator, hooks=hooks)  # is not refused
    assert logic.hooks == hooks
