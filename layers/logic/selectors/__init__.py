"""The selectors by name."""

from __future__ import annotations

from layers.logic.selector import Selector
from layers.logic.selectors.by_size import BySize
from layers.logic.selectors.round_robin import RoundRobin
from layers.logic.selectors.uniform import Uniform

SELECTORS: dict[str, type[Selector]] = {
    "uniform": Uniform,
    "by-size": BySize,
    "round-robin": RoundRobin,
}
