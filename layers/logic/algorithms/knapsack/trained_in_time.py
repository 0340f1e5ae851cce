"""The plan in which all clients train and offer, except those that will not be done in time."""

from __future__ import annotations

from collections.abc import Sequence

from layers.logic.algorithms.knapsack.reported_times import TIMES, ReportedTimes, deadline_of
from layers.logic.core.plan import Plan, Population, single_lanes
from layers.logic.core.selector import Inquiry
from layers.logic.core.survey import Question


def ask_everybody(population: Population) -> Sequence[Inquiry]:
    """Return the inquiry of all clients how long they will train and upload."""
    return [(Question(TIMES), population.clients)]


def everybody_in_time(population: Population, asked: bool) -> Plan:
    """Return the plan of all clients or, if they were asked, of those that will train in time.

    Args:
        population: with the clients' answers, if they were asked.
        asked: whether clients were asked for their times.
    """
    clients: Sequence[int] = population.clients
    if asked:
        clients = ReportedTimes.of(population).trained_before(deadline_of(population))
    return Plan(single_lanes(clients), offers=True)
