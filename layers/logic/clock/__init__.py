"""Time in a round: virtual on simulated devices and channels, or real, with one interface.

Selection by these times belongs to the selectors.
"""

from __future__ import annotations

from collections.abc import Mapping

from layers.logic.clock.availability import Always, Availability, Chance, Trace
from layers.logic.clock.clock import Clock
from layers.logic.clock.devices import (
    Devices,
    Fleet,
    Knapsack,
    Lognormal,
    Range,
    Tiers,
)
from layers.logic.clock.instant import InstantClock
from layers.logic.clock.real import RealClock
from layers.logic.clock.uploads import Parallel, Serial, Uploads
from layers.logic.clock.virtual import ClockEvent, VirtualClock

DEVICES: Mapping[str, type[Devices]] = {
    "knapsack": Knapsack,
    "lognormal": Lognormal,
    "tiers": Tiers,
    "range": Range,
}
AVAILABILITIES: Mapping[str, type[Availability]] = {
    "always": Always,
    "chance": Chance,
    "trace": Trace,
}
UPLOADS: Mapping[str, type[Uploads]] = {"parallel": Parallel, "serial": Serial}

__all__ = [
    "AVAILABILITIES",
    "DEVICES",
    "UPLOADS",
    "Availability",
    "Devices",
    "Fleet",
    "Clock",
    "ClockEvent",
    "InstantClock",
    "RealClock",
    "Uploads",
    "VirtualClock",
]
