"""The conclusion of a round: aggregation, the hooks' `conclude`, and the next state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from layers.logic.checks.parts import at_place
from layers.logic.checks.returned import failure, guarded
from layers.logic.core.messages import CANNOT_TRAIN
from layers.logic.core.peers import Peers
from layers.logic.core.report import BrokenModel, RoundReport, TooFewUpdates, Traffic
from layers.logic.core.selector import SELECT
from layers.logic.core.state import ServerState, frozen
from layers.logic.errors import NotUsable
from layers.logic.round.collection import Collection
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.round.validation import check_model
from layers.logic.seeds import derive


def conclude(
    state: ServerState,
    collection: Collection,
    pipeline: ServerPipeline,
    peers: Peers,
    logic: Logic,
) -> tuple[ServerState, RoundReport]:
    """Return the next state and the report of a round in which nothing more will come.

    Raises:
        TooFewUpdates: fewer updates were accepted than the experiment asks for.
        BrokenModel: clients cannot train on the model of this round, or the next one has values
            that are not finite, or is too far from this one.
    """
    round, plan, fold = state.round + 1, collection.plan, collection.fold
    fold.rest(collection.outcomes)
    report = _report(round, collection, peers, logic)
    accepted = report.of("accepted")
    _check_trainable(state, report, logic)
    if len(accepted) < logic.min_updates:
        raise TooFewUpdates(len(accepted), logic.min_updates, report)
    try:
        aggregated = fold.finish(state)
        by = f"{type(logic.aggregator).__name__}{at_place(type(logic.aggregator).finish)}"
        check_model(aggregated, logic, state, by)  # so that no server optimiser keeps a broken one
        after = pipeline.conclude(aggregated)
        if after.weights is not aggregated.weights:
            check_model(after, logic, state)
    except NotUsable as error:
        raise BrokenModel(str(error), report, at_start=False) from error
    end = logic.selector.on_round_end
    kept: Any = guarded(end, after.memory.get(SELECT, {}), report, round=round)
    if not isinstance(kept, Mapping):
        what = f"returned a {type(kept).__name__}; it must return its memory, a dict"
        raise failure(end, what, round)
    memory = {**after.memory, **pipeline.memory, SELECT: dict(kept)}
    # A client knows its memory by the round of its task, which may have been an earlier one.
    late = {client: state.in_flight[client].round for client in plan.late}
    task_rounds = {client: late.get(client, round) for client in accepted}
    last_accepted = {**state.last_accepted, **task_rounds}
    for client in collection.cut_off:  # it begins anew: its memory is of a pass that counts in part
        last_accepted.pop(client, None)
    after = ServerState(
        round=round,
        weights=frozen(after.weights),
        buffers=frozen(after.buffers),
        memory={key: kept for key, kept in memory.items() if kept},
        last_accepted=last_accepted,
        in_flight=collection.dispatch.in_flight(),
    )
    return after, replace(report, numbers=pipeline.numbers)


def _check_trainable(state: ServerState, report: RoundReport, logic: Logic) -> None:
    """Check that it is not the model's fault if clients could not train.

    What clients say is believed only if they are more than those whose updates were accepted, and
    if the server cannot train either or they are more than half of all clients: a few attackers
    cannot undo the work of the others by a word.

    Raises:
        BrokenModel: it is the model's fault.
    """
    saying = [one.client for one in report.clients if one.code == CANNOT_TRAIN]
    if len(saying) <= len(report.of("accepted")):
        return
    if logic.clients is None or 2 * len(saying) <= logic.clients:
        seed = derive(logic.seed, "trial", report.round)
        training = logic.training_of(report.round)
        trains = logic.facilities.trains
        if trains is None or trains(state.weights, state.buffers, training, seed):
            return
    raise BrokenModel(
        f"round {report.round}: {len(saying)} of {report.selected} clients cannot train on the "
        f"model after round {state.round}, since losses or updates are not finite",
        report,
        at_start=True,
    )


def _report(round: int, collection: Collection, peers: Peers, logic: Logic) -> RoundReport:
    plan, traffic, times = collection.plan, peers.traffic(), peers.times()
    outcomes = [
        replace(
            collection.outcomes[client],
            traffic=traffic.get(client, Traffic()),
            times=times.get(client),
        )
        for client in (*plan.clients, *plan.late)
        if client in collection.outcomes  # stragglers that stay in flight have no outcome yet
    ]
    return RoundReport(
        round=round,
        learning_rate=logic.training_of(round).learning_rate,
        selected=len(plan.clients),
        clients=(*outcomes, *collection.unexpected),
        traffic=sum(traffic.values(), Traffic()),
        took_s=peers.elapsed_s,
    )
