"""Selectors of the tests' own that several files work with."""

from __future__ import annotations

from dataclasses import dataclass

from layers.logic import Plan, Selector, SelectorContext, single_lanes


@dataclass(frozen=True)
class InPasses(Selector):
    """The same lanes every round, gone through several times; without lanes each client alone."""

    lanes: tuple[tuple[int, ...], ...] | None = None
    passes: int = 2

    @property
    def tasks_per_round(self) -> int:
        return self.passes

    def select(self, context: SelectorContext) -> Plan:
        lanes = single_lanes(context.clients) if self.lanes is None else self.lanes
        return Plan(lanes, passes=self.passes)


@dataclass(frozen=True)
class Offered(Selector):
    """Everybody offers, and every offer is granted."""

    def select(self, context: SelectorContext) -> Plan:
        return Plan(single_lanes(context.clients), offers=True)
