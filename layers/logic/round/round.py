"""A round as a state machine: events come in, commands go out; no I/O, no clock, no threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from layers.logic.checks.parts import at_place
from layers.logic.checks.returned import failure, guarded
from layers.logic.client_sizes import ClientSizes
from layers.logic.core.attack import attack_in
from layers.logic.core.messages import CANNOT_TRAIN, Offer, Update
from layers.logic.core.report import BrokenModel, ClientReport, RoundReport, TooFewUpdates, Traffic
from layers.logic.core.round import (
    Answers,
    Changed,
    Next,
    OpenRound,
    PlannedLane,
    Wait,
    nothing,
)
from layers.logic.core.selector import SELECT
from layers.logic.core.state import ServerState, frozen
from layers.logic.errors import NotUsable
from layers.logic.round.algorithm import Algorithm
from layers.logic.round.cohort import (
    ask_aggregator,
    ask_cohort,
    ask_first,
    ask_hooks,
    available,
    begin_round,
    planned_lanes,
)
from layers.logic.round.collection import Collection
from layers.logic.round.exchange import (
    Begin,
    Carrier,
    ClientLost,
    Close,
    Command,
    Costs,
    Event,
    Joined,
    ReportCosts,
    StateLost,
    TimerFired,
    TimerName,
)
from layers.logic.round.lanes import Dispatch, Fold
from layers.logic.round.logic import Logic
from layers.logic.round.patience import PATIENCE, Patience, Waiting
from layers.logic.round.pipeline import ServerPipeline, Trace
from layers.logic.round.port import Port, Steps
from layers.logic.round.validation import check_model
from layers.logic.seeds import derive
from layers.logic.storage import UpdateStore


class RoundMachine:
    """The round after `state`: it chooses the cohort, sends tasks, collects, folds and concludes.

    ::

        round = RoundMachine(state, logic)
        commands = round.start(population)
        while not round.done:
            event, at_s = carrier.exchange(commands)
            commands = round.handle(event, at_s)
        state, report = round.result()

    Args:
        state: the state after the round before.
        logic: the logic of the experiment.
        untrusted: whether clients are processes of others (see `Carrier.untrusted`).
        patience: how long a connected client may be silent; None: any time.
        store: keeps updates on disk until they are folded, if the aggregator reads them by slices;
            None: they are in memory.
        trace: takes each task and update after each step on the server; None: nothing does.

    Attributes:
        state, logic: as given.
        planned: the lanes that the algorithm planned before its first wait; None: it still asks.
    """

    def __init__(
        self,
        state: ServerState,
        logic: Logic,
        *,
        untrusted: bool = False,
        patience: Patience | None = None,
        store: UpdateStore | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.state = state
        self.logic = logic
        self.planned: Sequence[PlannedLane] | None = None
        self._algorithm: Algorithm | None = None
        self._untrusted = untrusted
        self._patience = patience
        self._store = store
        self._trace = trace
        self._collection: Collection | None = None
        self._steps: Steps[tuple[ServerState, RoundReport]] | None = None
        self._result: tuple[ServerState, RoundReport] | None = None

    @property
    def outcomes(self) -> Mapping[int, ClientReport]:
        """The reports of the clients whose part in the round has ended, by client."""
        return {} if self._collection is None else self._collection.outcomes

    @property
    def wait(self) -> Wait | None:
        """What the algorithm waits for; None: it has not begun, or has ended."""
        return None if self._algorithm is None else self._algorithm.wait

    @property
    def awaited(self) -> str:
        """What the algorithm waits for, in words; empty: it does not say."""
        return "" if self.wait is None else self.wait.awaited

    def reports(self) -> Sequence[ClientReport]:
        """Return the reports until now, also on tasks that were sent and are in flight."""
        if self._result is not None:
            return self._result[1].clients
        return () if self._collection is None else self._collection.reports()

    @property
    def done(self) -> bool:
        """Whether the round has a result, so that no further event is needed."""
        return self._result is not None

    def start(self, population: Mapping[int, int]) -> Sequence[Command]:
        """Start with the clients that can be asked; return the first commands.

        Args:
            population: the clients with their numbers of samples.

        Raises:
            LogicError: what the algorithm plans cannot be carried out.
        """
        self._steps = self._run(population)
        return next(self._steps)

    def handle(self, event: Event, at_s: float) -> Sequence[Command]:
        """Handle an event; return the commands that follow from it.

        Args:
            event: the event.
            at_s: its time, in seconds since the round began (see `Carrier.exchange`).

        Raises:
            TooFewUpdates: fewer updates were accepted than `logic.min_updates`; the state before
                the round stays valid.
            BrokenModel: clients cannot train on the model, or the round made one that is not finite
                or too far from it; the state before the round stays valid.
            LogicError: what the algorithm says cannot be carried out.
        """
        assert self._steps is not None, "start the round first"
        try:
            return self._steps.send((event, at_s))
        except StopIteration as end:
            self._result = end.value
            return ()

    def close(self) -> None:
        """Free the round's memory, also if it is not `done`."""
        if self._steps is not None:
            self._steps.close()

    def result(self) -> tuple[ServerState, RoundReport]:
        """Return the next state, and the report of the round, once it is `done`."""
        assert self._result is not None, "the round is not done"
        return self._result

    def _run(self, samples: Mapping[int, int]) -> Steps[tuple[ServerState, RoundReport]]:
        logic, state = self.logic, _warmed_up(self.state, self.logic)
        waiting = Waiting(self._patience, state, logic.deadline_s or 0.0)
        port = Port(samples, waiting, logic.deadline_s)
        round = begin_round(state, port, logic, simulated=not self._untrusted)
        self._algorithm = algorithm = Algorithm(logic.selector, round)
        state = yield from ask_first(algorithm, round, state, port, logic)
        self.planned = planned = planned_lanes(algorithm, round, logic, round.in_flight)
        pipeline = ServerPipeline(logic, state, round.all_clients, self._trace, port.samples)
        clients = [client for lane in planned for client in lane.clients]
        excluded = yield from ask_cohort(clients, state, pipeline, port, logic)

        asynchronous = logic.asynchronous
        dispatch = Dispatch(state, pipeline, logic, round.in_flight)
        round.in_flight = dispatch.outstanding.keys()
        wait = asynchronous or pipeline.asks("returned")
        fold = Fold(dispatch.lanes, state, logic, pipeline, wait, self._store)
        self._collection = collection = Collection(
            round, dispatch, fold, pipeline, logic, port, self._untrusted
        )
        round.answer, round.close = collection.answer, collection.decline
        turns = tuple(clients) if round.in_turn else None
        late = tuple(dispatch.outstanding.values())
        port.put(Begin(round.number, round.before_s, round.after_s, turns, late, asynchronous))
        waiting.begin(port.now_s, dispatch.outstanding, None if asynchronous else logic.min_updates)
        port.now_s = 0.0
        if logic.deadline_s is not None:
            # The time after the last update is virtual; real time passes by itself.
            after_s = 0.0 if self._untrusted else round.after_s
            port.set_timer("deadline", max(logic.deadline_s - after_s, 0.0))
        if isinstance(algorithm.wait, Changed):
            port.set_timer("refill", 0.0)
        if planned or not asynchronous:
            collection.begin(planned, excluded)
        try:
            yield from self._collect(collection, round, port)
        finally:
            algorithm.close()
            # A cycle would keep the updates of a round that failed.
            round.answer = round.close = nothing

        collection.close()
        for timer in get_args(TimerName):
            port.set_timer(timer, None)
        port.put(Close())
        in_flight = waiting.memory(dispatch.outstanding, port.now_s)
        yield from ask_hooks("returned", collection.accepted, state, pipeline, port, logic)
        collection.discard(pipeline.discarded("returned", collection.accepted))
        fold.rest(by_task=asynchronous)
        yield from ask_aggregator(fold, state, port, logic)
        collection.account((yield from port.costs()))
        after, report = _conclude(state, round, collection, pipeline, logic, in_flight)
        if logic.evaluation is None or not logic.evaluation.is_due(after.round):
            return after, report
        idle = [one for one in available(after, port, logic) if one not in dispatch.outstanding]
        return after, (yield from logic.evaluation.evaluated(report, after, idle, logic.seed, port))

    def _collect(self, collection: Collection, round: OpenRound, port: Port) -> Steps[None]:
        """Handle events until the algorithm has ended, or the deadline has passed."""
        waiting, algorithm = port.waiting, self._algorithm
        assert algorithm is not None
        # The lanes that begin as soon as the costs of their clients' last tasks are known.
        held: Sequence[PlannedLane] = ()
        opening = True
        while True:
            if round.planned:
                if not self.logic.asynchronous:
                    raise algorithm.refused(
                        "trains further clients after its first wait; let it provide "
                        "Trait.ASYNCHRONOUS, or call train before it waits"
                    )
                planned = planned_lanes(algorithm, round, self.logic, round.in_flight)
                if any(one in collection.outcomes for lane in planned for one in lane.clients):
                    held = planned
                    port.put(ReportCosts())
                else:
                    collection.begin(planned)
            if algorithm.wait is None:
                if not self.logic.asynchronous:
                    collection.decline()
                return
            if isinstance(algorithm.wait, Answers):
                raise algorithm.refused("asks clients after they have their tasks; ask before")
            if isinstance(algorithm.wait, Changed):
                collection.news.clear()
                if round.accepted >= algorithm.wait.accepted:
                    if algorithm.resume(False) is not None:
                        raise algorithm.refused("goes on when its round has enough updates; return")
                    continue
            elif collection.news:
                algorithm.resume(collection.news.popleft())
                continue
            elif self._waits_for_nothing(algorithm, round, opening):
                algorithm.resume(None)
                continue
            opening = False
            timer_s = algorithm.wait.until_s if isinstance(algorithm.wait, Next) else None
            port.set_timer("offers", timer_s)
            port.set_timer("patience", waiting.next_s())
            event = yield from port.step()
            now_s = round.now_s = port.now_s
            match event:
                case Offer():
                    collection.on_offer(event)
                case Update():
                    collection.on_update(event)
                case ClientLost():
                    waiting.lost(event, now_s)
                    collection.on_client_lost(event)
                case StateLost():
                    collection.on_state_lost(event)
                case TimerFired("deadline"):
                    algorithm.close()
                    return
                case TimerFired("offers"):
                    algorithm.resume(None)
                case TimerFired("patience"):
                    for client in waiting.spent(now_s):
                        collection.give_up(client)
                case TimerFired("refill"):
                    self._renew(collection, round, port)
                    algorithm.resume(True)
                case Costs():
                    collection.account(event)
                    collection.begin(held)
                    held = ()
            freed = isinstance(event, Update | ClientLost | Joined)
            if isinstance(algorithm.wait, Changed) and freed and not held:
                port.set_timer("refill", now_s)
            del event  # frees a folded update before the next one arrives

    def _waits_for_nothing(self, algorithm: Algorithm, round: OpenRound, opening: bool) -> bool:
        """Return whether nothing can come for which the algorithm waits.

        Raises:
            PartFailed: it should have known that.
        """
        wait = algorithm.wait
        if not isinstance(wait, Next) or wait.until_s is not None or self.logic.asynchronous:
            return False
        if not round.in_flight:
            if wait.may_end or opening:  # nobody could be asked
                return True
            raise algorithm.refused(
                "waits for a client, and none has a task; wait while round.outstanding"
            )
        if len(round.offers) == len(round.in_flight):
            raise algorithm.refused(
                "waits for clients that wait for its verdict; grant or decline their offers"
            )
        return False

    def _renew(self, collection: Collection, round: OpenRound, port: Port) -> None:
        """Find who can be asked now, and draw anew for the next tasks."""
        samples = ClientSizes.of(available(self.state, port, self.logic))
        if lost := collection.lost:  # it may have left since the round was opened
            samples = samples.only(samples.ids[~np.isin(samples.ids, lost)])
        round.sizes = samples
        round.next_tasks(collection.dispatch.next_task_number)


def run_round(
    state: ServerState,
    carrier: Carrier,
    logic: Logic,
    store: UpdateStore | None = None,
) -> tuple[ServerState, RoundReport]:
    """Run the round after `state` with a carrier; see `RoundMachine`."""
    state, population = carrier.open_round(state)
    round = RoundMachine(state, logic, untrusted=carrier.untrusted, store=store)
    commands = round.start(population)
    while not round.done:
        event, at_s = carrier.exchange(commands)
        commands = round.handle(event, at_s)
        del event  # frees a folded update before the next one arrives
    return round.result()


def _warmed_up(state: ServerState, logic: Logic) -> ServerState:
    """Return the state before round 1 after the hooks' `warm_up`; return any later state as it is.

    Raises:
        LogicError: a hook cannot train, or the model that it made is not finite.
    """
    if state.round:
        return state
    after = ServerPipeline(logic, state, logic.clients or 0).warm_up()
    if after is state:
        return state
    check_model(after, logic)
    return replace(after, weights=frozen(after.weights), buffers=frozen(after.buffers))


def _conclude(
    state: ServerState,
    seen: OpenRound,
    collection: Collection,
    pipeline: ServerPipeline,
    logic: Logic,
    patience: Mapping[str, Any],
) -> tuple[ServerState, RoundReport]:
    """Return the next state and the report of a round in which nothing more will come.

    Raises:
        TooFewUpdates: fewer updates were accepted than the experiment asks for.
        BrokenModel: clients cannot train on the model of this round, or the next one has values
            that are not finite, or is too far from this one.
    """
    round, fold = state.round + 1, collection.fold
    report = _report(round, collection, logic)
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
    kept: Any = guarded(end, seen.memory, report, round=round)
    if not isinstance(kept, Mapping):
        what = f"returned a {type(kept).__name__}; it must return its memory, a dict"
        raise failure(end, what, round)
    memory = {**after.memory, **pipeline.memory, SELECT: dict(kept), PATIENCE: dict(patience)}
    # A client knows its memory by the number of its task.
    ended = [one for one in report.clients if one.status == "accepted"]
    last_accepted = {**state.last_accepted, **{one.client: one.task_round for one in ended}}
    base = dict(state.base)
    for one in ended:
        if one.version is not None and one.version != one.task_round - 1:
            base[one.client] = one.version
        else:
            base.pop(one.client, None)
    for client in collection.cut_off:  # its memory is of a pass that counts only in part
        last_accepted.pop(client, None)
    after = ServerState(
        round=round,
        weights=frozen(after.weights),
        buffers=frozen(after.buffers),
        memory={key: kept for key, kept in memory.items() if kept},
        last_accepted=last_accepted,
        base=base,
        groups={**state.groups, **collection.groups} if after.models else {},
        models={
            group: (frozen(weights), frozen(buffers))
            for group, (weights, buffers) in after.models.items()
        },
        **collection.dispatch.kept(),
    )
    suspended = patience.get("suspended_s", {})
    attack = attack_in(logic.hooks)
    malicious = attack.malicious if attack is not None else ()
    clients = tuple(
        replace(one, share=_share(one, fold.shares), malicious=one.client in malicious)
        for one in report.clients
    )
    report = replace(report, clients=clients, numbers=pipeline.numbers, suspended=suspended)
    return after, report


def _share(report: ClientReport, shares: Mapping[tuple[int, int], float]) -> float | None:
    """Return how much a client's update counted; None: it has none, or that is not known."""
    accepted = report.status == "accepted"
    return shares.get((report.client, report.task_round)) if accepted else None


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


def _report(round: int, collection: Collection, logic: Logic) -> RoundReport:
    dispatch, accounts = collection.dispatch, collection.accounts
    asynchronous = logic.asynchronous
    selected = sum(dispatch.sent.values()) if asynchronous else len(collection.planned)
    clients = collection.reports()
    known = {one.client for one in clients}
    others = tuple(
        ClientReport(client, "not-selected", traffic=traffic)
        for client, traffic in sorted(accounts.traffic.items())
        if client not in known and traffic != Traffic()
    )
    return RoundReport(
        round=round,
        learning_rate=logic.training_of(round).learning_rate,
        selected=selected,
        clients=tuple(clients),
        traffic=sum(accounts.traffic.values(), Traffic()),
        took_s=accounts.took_s,
        waited_s=accounts.waited_s,
        overhead=accounts.overhead,
        in_flight=len(dispatch.outstanding) if asynchronous else None,
        others=others,
    )
