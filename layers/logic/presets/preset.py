"""A preset: an algorithm's name stands for a selector, an aggregator and hooks."""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic.core.aggregator import Aggregator
from layers.logic.core.hook import Hook
from layers.logic.core.selector import Selector


@dataclass(frozen=True)
class Preset:
    """What an algorithm's name stands for.

    Attributes:
        selector: who takes part.
        aggregator: how contributions become the next state.
        hooks: what happens to tasks and updates on their way.
    """

    selector: Selector
    aggregator: Aggregator
    hooks: tuple[Hook, ...] = ()
