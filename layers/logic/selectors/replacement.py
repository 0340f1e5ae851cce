"""Rounds without some clients: another client takes the place of each that was selected.

Whoever is selected by number alone can be replaced so. Let S be a uniform draw of m clients. Given
that it holds k of those that are left out, the others of S are a uniform draw of m - k of all
others, and with k more of these, drawn uniformly, one of m: the cohort is distributed as if those
that are left out had never been there. And a round that selects none of them is the same round
with and without them, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from layers.logic.core.plan import Plan, single_lanes
from layers.logic.seeds import generator
from layers.logic.selectors.weighted import draw_uniform


def replaced(
    plan: Plan, clients: Sequence[int], without: Sequence[int], seed: int, round: int
) -> Plan:
    """Return a plan with other clients in the place of those that are left out.

    If there are too few others, the cohort is smaller.

    Args:
        plan: the plan, of lanes of one client.
        clients: the clients that were there to select, those that are left out among them.
        without: the clients that are left out.
        seed: seed of the run.
        round: number of the round, from 1.
    """
    stay = [client for client in plan.clients if client not in without]
    missing = len(plan.clients) - len(stay)
    if not missing:
        return plan
    taken = {*plan.clients, *without}
    others = [client for client in clients if client not in taken]
    drawn = draw_uniform(generator(seed, "replace", round), len(others), min(missing, len(others)))
    lanes = single_lanes([*stay, *(others[place] for place in drawn)])
    enough = None if plan.enough is None else max(min(plan.enough, len(lanes)), 1)
    return replace(plan, lanes=lanes, enough=enough)
