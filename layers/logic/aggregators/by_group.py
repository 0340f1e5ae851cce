"""Another rule for each group of a round, whose groups have models of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layers.logic.aggregators.mean import Mean
from layers.logic.core.aggregator import AGGREGATE, Aggregator, Contribution
from layers.logic.core.declaration import Trait
from layers.logic.core.hook import ServerContext, ServerSide
from layers.logic.core.messages import EMPTY, Update
from layers.logic.core.parts import Parts
from layers.logic.core.state import ServerState
from layers.logic.errors import LogicError
from layers.settings import Count

MEAN = Mean()


@dataclass
class _Groups:
    """The fold: the value of each group's, and what it needs to begin another one."""

    state: ServerState
    context: ServerContext
    totals: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)  # of each one's contributions


@dataclass(frozen=True)
class ByGroup(Aggregator):
    """Another rule for the updates of each group, which make the group's own model.

    Clients of a group train from its model. A group without a model begins with the global one, or
    with that of `OpenRound.models`. The global model is the mean of the models of the groups that
    returned, by their samples. A group keeps its model if none of its
    clients returned.

    Source: the models of groups of Ghosh et al. 2020 (IFCA) and of the edges of Liu et al. 2020
    (hierarchical FedAvg).

    Attributes:
        rule: aggregates the updates of a group.
        together: after every so many rounds, all groups go on from the global model; None: never.
    """

    name = "by-group"

    rule: Aggregator = MEAN
    together: Count | None = None

    @property
    def provides(self) -> frozenset[Trait]:
        return frozenset(self.rule.provides & {Trait.BY_SLICES})

    @property
    def least_updates(self) -> int:
        """The fewest that the other rule needs of one group."""
        return self.rule.least_updates

    def check(self, logic: Parts) -> None:
        """Check that no hook works on the global model, from which no client trains."""
        for hook in logic.hooks:
            changes = type(hook.server()).conclude is not ServerSide.conclude
            if changes or Trait.ENCODES_MODEL in hook.provides:
                raise LogicError(
                    f"by-group keeps a model for each group, and {type(hook).__name__} works on "
                    "the global model; leave one of them out"
                )

    def inspect(self, update: Update) -> None:
        self.rule.inspect(update)

    def begin(self, state: ServerState, context: ServerContext) -> _Groups:
        return _Groups(state, context)

    def add(self, total: _Groups, contribution: Contribution) -> _Groups:
        group = contribution.group
        if not group:
            raise LogicError(
                "by-group keeps a model for each group, and the selector trains a client without "
                "one; name a group in round.train, or use the rule alone"
            )
        if group not in total.totals:
            total.totals[group] = self.rule.begin(_of_group(total.state, group), total.context)
        total.totals[group] = self.rule.add(total.totals[group], contribution)
        total.samples[group] = total.samples.get(group, 0) + contribution.samples
        total.places.setdefault(group, []).append(sum(map(len, total.places.values())))
        return total

    def finish(self, total: _Groups, state: ServerState) -> ServerState:
        models, kept = dict(state.models), dict(state.memory.get(AGGREGATE, {}))
        every = sum(total.samples.values())
        weights, buffers = np.zeros(state.weights.size), np.zeros(state.buffers.size)
        shares = np.zeros(sum(map(len, total.places.values())))
        known = True
        for group, value in total.totals.items():
            after = self.rule.finish(value, _of_group(state, group))
            models[group] = after.weights, after.buffers
            kept[group] = after.memory.get(AGGREGATE, {})
            share = total.samples[group] / every
            weights += share * after.weights
            buffers += share * after.buffers
            known &= after.shares.size > 0
            if known:
                shares[total.places[group]] = share * after.shares
        if self.together is not None and (state.round + 1) % self.together == 0:
            models = {}
        memory = {**state.memory, AGGREGATE: {group: one for group, one in kept.items() if one}}
        return replace(
            state,
            weights=weights.astype(np.float32),
            buffers=buffers.astype(np.float32),
            models=models,
            memory=memory,
            shares=shares if known else EMPTY,
        )


def _of_group(state: ServerState, group: str) -> ServerState:
    """Return the state as the group's rule sees it: its model, and its own memory."""
    weights, buffers = state.models.get(group, (state.weights, state.buffers))
    kept: Mapping[str, Any] = state.memory.get(AGGREGATE, {})
    memory = {**state.memory, AGGREGATE: kept.get(group, {})}
    return replace(state, weights=weights, buffers=buffers, models={}, memory=memory)
