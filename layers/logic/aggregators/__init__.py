"""The aggregators by name."""

from __future__ import annotations

from layers.logic.aggregator import Aggregator
from layers.logic.aggregators.mean import Mean

AGGREGATORS: dict[str, type[Aggregator]] = {"mean": Mean}
