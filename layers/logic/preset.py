"""A preset: an algorithm's name stands for a selector, an aggregator and hooks."""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic.aggregator import Aggregator
from layers.logic.hook import Hook
from layers.logic.selector import Selector


@dataclass(frozen=True)
class Preset:
    """What an algorithm's name stands for."""

    selector: Selector
    aggregator: Aggregator
    hooks: tuple[Hook, ...] = ()
