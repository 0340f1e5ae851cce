"""A preset: an algorithm's name stands for a selector, an aggregator and hooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layers.logic.core.aggregator import Aggregator
from layers.logic.core.hook import Hook
from layers.logic.core.selector import Selector


@dataclass(frozen=True)
class Preset:
    """What an algorithm's name stands for."""

    selector: Selector
    aggregator: Aggregator
    hooks: tuple[Hook, ...] = ()

    def joined(self, own: Sequence[Hook]) -> tuple[Hook, ...]:
        """Return the hooks together with a user's own, which come first.

        But what the preset does to an update comes before the first of them that gives it another
        form: behind it there is nothing left to look at.
        """
        encodes = [hook.encodes_update for hook in own]
        if not any(encodes):
            return (*own, *self.hooks)
        first = encodes.index(True)
        plain = [hook for hook in self.hooks if not hook.encodes_update]
        encoding = [hook for hook in self.hooks if hook.encodes_update]
        return (*own[:first], *plain, *own[first:], *encoding)
