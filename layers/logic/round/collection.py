"""Collection: the round handles its events, and decides the fate of each update."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from layers.logic.core.declaration import Need
from layers.logic.core.messages import CANNOT_TRAIN, EMPTY, Offer, Task, Update, Verdict
from layers.logic.core.plan import Plan, Population
from layers.logic.core.report import ClientReport, Times, Traffic
from layers.logic.core.selector import SELECT, PendingOffers, Selector
from layers.logic.core.state import ServerState
from layers.logic.core.trainer import LocalSgd
from layers.logic.errors import CannotTrain, Rejected, reason_of
from layers.logic.numeric.vectors import largest
from layers.logic.record_size import REASON_BYTES, TRACEBACK_BYTES, shortened
from layers.logic.round.exchange import Cancel, ClientLost, Costs, StateLost
from layers.logic.round.lanes import Dispatch, Fold, Lane
from layers.logic.round.logic import Logic
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.round.validation import (
    check_content,
    check_envelope,
    check_masked,
    check_offer,
    check_slots,
)

ENOUGH = "enough others came back first"
DECLINED = "its offer was declined"
NOT_OFFERED = "declined before it offered"
NOT_REACHED = "not reached: the round ended before the client ahead of it in its lane"
FAILED_ALIKE = 3  # this number of clients with the same failure are not its cause
NO_ANSWER = "no answer before the round ended"


class Collection:
    """Takes the events of one round, in any order.

    Args:
        plan: plan of the round.
        dispatch: makes the tasks, and knows which are outstanding.
        offers: the offers of the round.
        fold: folds the lanes that have ended.
        pipeline: decodes updates.
        logic: logic of the experiment.
        untrusted: whether clients are processes of others (see `Carrier.untrusted`).
        samples_of: returns how many samples a client has announced.

    Attributes:
        plan, dispatch, fold: as given.
        outcomes: the reports of the clients of the plan whose part has ended, by client.
        earlier: the reports of tasks that ended before another task of the same client did.
        accounts: the costs of the round until now.
        passed: the reports of the clients whose updates were accepted in passes before their last
            one, by client.
    """

    def __init__(
        self,
        plan: Plan,
        dispatch: Dispatch,
        offers: OfferBook,
        fold: Fold,
        pipeline: ServerPipeline,
        logic: Logic,
        untrusted: bool,
        samples_of: Callable[[int], int],
    ) -> None:
        self.plan = plan
        self.dispatch = dispatch
        self._offers = offers
        self.fold = fold
        self._pipeline = pipeline
        self._aggregator, self._local_tensors = logic.aggregator, logic.local_tensors
        self._max_update = logic.max_update
        self._most_staleness = logic.aggregator.most_staleness
        # How many steps another trainer takes is not known here.
        self._knows_steps = logic.needs(Need.STEPS) and isinstance(logic.trainer, LocalSgd)
        self._untrusted, self._samples_of = untrusted, samples_of
        self._returned: Counter[str] = Counter()  # by group, the lanes that ended with an update
        self._open: dict[str, list[Lane]] = {group: [] for group in plan.quotas}  # with their lanes
        for lane in dispatch.lanes:
            if lane.group in self._open:
                self._open[lane.group].append(lane)
        self._closing: list[Lane] = []  # those of the groups that have just reached their quota
        self.outcomes: dict[int, ClientReport] = {}
        self.earlier: list[ClientReport] = []
        self.accounts = Costs(0.0)
        self._costs: dict[int, tuple[Traffic, Times | None]] = {}  # that no report has yet
        self._counted: Counter[int] = Counter()  # by client, the tasks in reports
        self.passed: dict[int, ClientReport] = {}
        self._unexpected: list[ClientReport] = []
        self._measured = EMPTY, 0.0  # weights, and the largest value in them
        # By file and line in which a server side failed, the clients whose updates it was given.
        self._failed: dict[tuple[str, int], set[int]] = {}

    @property
    def accepted(self) -> list[int]:
        """The clients whose updates were accepted so far, in the order of the plan."""
        clients = (*self.plan.clients, *self.plan.late)
        return [
            one
            for one in clients
            if one in self.outcomes and self.outcomes[one].status == "accepted"
        ]

    @property
    def cut_off(self) -> set[int]:
        """The clients that have ended before their last pass, and whose earlier updates count."""
        return self.passed.keys() - set(self.accepted) if self.passed else set()

    @property
    def has_enough(self) -> bool:
        """Whether as many lanes have returned as the plan needs."""
        return self.plan.enough is not None and self._returned.total() >= self.plan.enough

    @property
    def lost(self) -> list[int]:
        """The clients that were lost in this round."""
        reports = (*self.earlier, *self.outcomes.values())
        return [one.client for one in reports if one.status == "lost"]

    def has_part(self, clients: Iterable[int]) -> bool:
        """Return whether a task of any of these clients has ended in this round."""
        return any(client in self.outcomes for client in clients)

    def account(self, accounts: Costs) -> None:
        """Add costs, those of each client to its report if its last task has ended."""
        self.accounts += accounts
        for client in accounts.traffic.keys() | accounts.times.keys():
            before, _ = self._costs.get(client, (Traffic(), None))
            traffic = before + accounts.traffic.get(client, Traffic())
            self._costs[client] = traffic, accounts.times.get(client)
        for client, report in self.outcomes.items():
            if client not in self.dispatch.outstanding:  # else they are those of its next task
                self.outcomes[client] = self._with_costs(report)

    def reports(self) -> list[ClientReport]:
        """Return the reports of ended tasks, of those in flight, and of unexpected updates."""
        plan, outcomes = self.plan, self.outcomes
        order = outcomes if plan.refills else (*plan.clients, *plan.late)
        ended = [*self.earlier, *(outcomes[one] for one in order if one in outcomes)]
        sent = [
            ClientReport(
                client,
                "in-flight",
                task_round=task.round,
                version=task.model_version,
                staleness=self.dispatch.lane_of(client).staleness,
            )
            for client, task in self.dispatch.outstanding.items()
            if self.dispatch.sent[client] > self._counted[client] or self._cost(client)
        ]
        costly = map(self._with_costs, (*sent, *self._unexpected))
        return [*map(self._not_blamed, ended), *costly]

    def _not_blamed(self, report: ClientReport) -> ClientReport:
        """Return a client's report, with a note if its update is not the cause of a failure."""
        alike = max((len(x) for x in self._failed.values() if report.client in x), default=0)
        if alike < FAILED_ALIKE or report.status != "rejected" or not report.traceback:
            return report
        why = f"it fails alike on the updates of {alike} clients, so the fault is the hook's"
        return replace(report, reason=f"{report.reason}; {why}")

    def _cost(self, client: int) -> int:
        """Return the bytes of a client that no report has yet."""
        traffic, _ = self._costs.get(client, (Traffic(), None))
        return traffic.down_bytes + traffic.up_bytes

    def _with_costs(self, report: ClientReport) -> ClientReport:
        client = report.client
        traffic, times = self._costs.pop(client, (Traffic(), None))
        tasks = self.dispatch.sent[client] - self._counted[client]
        if not (traffic.down_bytes or traffic.up_bytes or times or tasks):
            return report
        self._counted[client] += tasks
        return replace(
            report,
            traffic=report.traffic + traffic,
            times=times or report.times,
            tasks=report.tasks + tasks,
        )

    def expect(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Record that these tasks are sent now; return them."""
        if self.plan.offers:
            self._offers.waiting.update(dict.fromkeys(task.client for task in tasks))
        return tasks

    def on_offer(self, offer: Offer, now_s: float) -> Sequence[Verdict]:
        """Process an offer; return the verdicts that can be given now."""
        client, task = offer.client, self.dispatch.outstanding.get(offer.client)
        if not self.plan.offers or task is None or offer.round != task.round:
            return []
        if client in self._offers.granted:  # the client reconnected after its grant
            return [Verdict(offer.round, client, granted=True)]
        if client in self._offers.open:
            return []
        try:
            check_offer(offer, *self._samples(client))
        except Rejected as rejection:
            self._drop(_rejected(client, rejection))
            return [Verdict(task.round, client, granted=False)]
        self._offers.add(offer)
        return self._settle(self._offers.verdicts(now_s))

    def on_timer(self, now_s: float) -> Sequence[Verdict]:
        """Return the verdicts that the selector gives when its timer has fired."""
        if not self._offers.open:
            return []
        return self._settle(self._offers.verdicts(now_s, timer_fired=True))

    def on_update(self, update: Update) -> Sequence[Task]:
        """Process an update; return the task of the next client in its lane, if there is one."""
        task = self.dispatch.outstanding.get(update.client)
        if task is None:
            self._note_unexpected(update)
            return []
        lane = self.dispatch.lane_of(update.client)
        try:
            decoded, peak = self._decode(update, task, lane)
        except Rejected as rejection:
            return self._drop(_rejected(update.client, rejection))
        except Exception as error:
            if not self._untrusted:
                raise
            trace = shortened(traceback.format_exc(), TRACEBACK_BYTES, from_end=True)
            self._failed.setdefault(_place_of(error), set()).add(update.client)
            reason = f"the server's side of a hook failed on it: {reason_of(error)}"
            return self._drop(ClientReport(update.client, "rejected", reason, trace))
        report = ClientReport(
            update.client,
            "accepted",
            samples=update.samples,
            steps=update.steps,
            metrics={**decoded.metrics, **self._offered_norm(update.client)},
            peak=peak,
        )
        lane.add(decoded)
        return self._end(report)

    def on_client_lost(self, lost: ClientLost) -> Sequence[Task]:
        """Record that a client was lost; return the task of the next client in its lane."""
        if lost.client not in self.dispatch.outstanding:
            return []
        status: Literal["rejected", "lost"] = "rejected" if lost.rejected else "lost"
        norm = self._offered_norm(lost.client)
        return self._drop(
            ClientReport(lost.client, status, lost.reason, lost.traceback, metrics=norm)
        )

    def on_state_lost(self, lost: StateLost) -> Sequence[Task]:
        """Return a task without earlier memory, for a client that lost its memory."""
        return self.dispatch.retry(lost)

    def decide(self, now_s: float) -> Sequence[Verdict]:
        """Return the verdicts that are due without a new offer.

        These are the verdicts on all open offers when every client has offered or was lost, and on
        the outstanding tasks of the round, or of a group, from which enough lanes have returned.
        """
        verdicts: list[Verdict] = []
        if lanes := self._needless():
            self._end_lanes(lanes, "declined", ENOUGH)
            tasks = self.dispatch.outstanding
            asked = [one for lane in lanes for one in lane.clients if one in tasks]
            late = [Verdict(tasks[one].round, one, granted=False) for one in asked]
            verdicts = self._settle(late, ENOUGH)
        if not self._offers.open or self._offers.waiting:
            return verdicts
        verdicts += self._settle(self._offers.verdicts(now_s))
        return [*verdicts, *self._decline_open()]

    def _needless(self) -> Sequence[Lane]:
        """Return the lanes that need not return, since enough others of their group have."""
        if self.has_enough and not self.plan.keeps_in_flight:
            return self.dispatch.lanes
        closing, self._closing = self._closing, []
        return closing

    @property
    def ended(self) -> bool:
        """Whether no client of the round is waited for any more."""
        if self.plan.keeps_in_flight and self.has_enough:
            return True
        return not self.dispatch.outstanding and not self.plan.refills

    def close(self) -> Sequence[Verdict | Cancel]:
        """End the round for the clients that are left; return the last commands to them."""
        verdicts = self._decline_open()
        self._end_lanes(self.dispatch.lanes, "lost", NOT_REACHED)
        if self.plan.keeps_in_flight:
            return verdicts
        left = list(self.dispatch.outstanding.items())
        for client, task in left:
            self.on_client_lost(ClientLost(task.round, client, NO_ANSWER))
        return [*verdicts, *(Cancel(client) for client, _ in left)]

    def discard(self, reasons: Mapping[int, str]) -> None:
        """Take back updates that were accepted and are not folded yet, each with the reason."""
        accepted = set(self.accepted)
        for client, reason in reasons.items():
            lane = self.dispatch.lane_of(client)
            for one in accepted.intersection(lane.clients):
                why = reasons.get(one, f"client {client} of its lane: {reason}")
                self.outcomes[one] = replace(self.outcomes[one], status="lost", reason=why)
                self.passed.pop(one, None)
            lane.discard()

    def note_lost(self, reasons: Mapping[int, str]) -> None:
        """Record clients of the plan that were lost before their task, each with the reason."""
        for client, reason in reasons.items():
            self.outcomes[client] = ClientReport(client, "lost", reason)

    def _decode(self, update: Update, task: Task, lane: Lane) -> tuple[Update, float]:
        """Return an update, checked and decoded, and how far it goes (see `check_content`).

        Raises:
            Rejected: it fails a check.
        """
        announced, most = self._samples(update.client)
        steps = task.training.steps_over(most) if self._knows_steps else None
        check_slots(update.slots, self._pipeline)
        check_envelope(update, task, announced, most, steps)
        if self.plan.offers and update.client not in self._offers.granted:
            raise Rejected("an update whose offer was not granted")
        if self._local_tensors is not None:
            update = self._local_tensors.expand(update, lane.buffers)
        if self._most_staleness is not None and lane.staleness > self._most_staleness:
            raise Rejected(f"staleness {lane.staleness}, above the limit {self._most_staleness}")
        decoded = self._pipeline.receive(update)
        if self._pipeline.masked:
            check_masked(decoded)
            return decoded, 0.0
        if lane.weights is not self._measured[0]:  # most lanes start from the same ones
            self._measured = lane.weights, largest(lane.weights)
        peak = check_content(decoded, *self._measured, lane.buffers, self._max_update)
        if self._local_tensors is not None:
            decoded = replace(decoded, delta=self._local_tensors.travelling(decoded.delta))
        self._aggregator.inspect(decoded)
        return decoded, peak

    def _samples(self, client: int) -> tuple[int, int]:
        """Return how many samples a client announced, and how many hooks can make of them."""
        announced = self._samples_of(client)
        return announced, self._pipeline.most_samples(client, announced)

    def _offered_norm(self, client: int) -> dict[str, float]:
        """Return the norm in a client's offer, which the selection used; empty without an offer."""
        offer = self._offers.all.get(client)
        return {} if offer is None else {"norm": offer.norm}

    def _note_unexpected(self, update: Update) -> None:
        known = self.outcomes.get(update.client, self.passed.get(update.client))
        reason = "not asked" if known is None else f"another update of a client {known.status}"
        report = ClientReport(update.client, "rejected", f"{reason} in this round")
        self._unexpected.append(report)

    def _drop(self, report: ClientReport) -> Sequence[Task]:
        """End the part of a client without an update; return the next task of its lane."""
        self._offers.remove(report.client)
        return self._end(replace(report, reason=shortened(report.reason, REASON_BYTES)))

    def _end(self, report: ClientReport) -> Sequence[Task]:
        """End a client's part, and fold what can be folded; return the next task of its lane."""
        task = self.dispatch.outstanding[report.client]
        lane = self.dispatch.end(report.client)
        offer = self._offers.all.get(report.client)
        report = replace(self._with_passes_before(report), task_round=task.round, offer=offer)
        if self.plan.keeps_in_flight or self.plan.late:
            report = replace(report, version=task.model_version, staleness=lane.staleness)
        if report.status == "accepted" and lane.passes > 1 and report.client in lane.waiting:
            self.passed[report.client] = report
        else:
            lane.leave(report.client)
            if report.client in self.outcomes:  # a round that refills has asked it again
                self.earlier.append(self.outcomes.pop(report.client))
            self.outcomes[report.client] = report
        tasks = self.expect(self.dispatch.next(lane))
        lane.ended = not tasks
        if not tasks and lane.updates:
            self._returned[lane.group] += 1
            if self._returned[lane.group] == self.plan.quotas.get(lane.group):
                self._closing += self._open.pop(lane.group)
            self.fold.keep(lane)
        self.fold.advance()
        return tasks

    def _end_lanes(
        self, lanes: Iterable[Lane], status: Literal["declined", "lost"], reason: str
    ) -> None:
        """End the parts of these lanes' clients that have no task yet."""
        for lane in lanes:
            for client in lane.waiting:
                if client not in self.dispatch.outstanding:
                    report = ClientReport(client, status, reason)
                    self.outcomes[client] = self._with_passes_before(report)
            lane.waiting.clear()
            lane.ended |= not any(one in self.dispatch.outstanding for one in lane.clients)

    def _with_passes_before(self, report: ClientReport) -> ClientReport:
        """Return a client's report with its steps in the passes before, and with a note of them."""
        before = self.passed.get(report.client)
        if before is None:
            return report
        report = replace(report, steps=before.steps + report.steps)
        if report.status == "accepted":
            return report
        return replace(report, samples=before.samples, counted_before=True)

    def _decline_open(self) -> Sequence[Verdict]:
        """Decline every offer that has no verdict yet."""
        offers = list(self._offers.open.values())
        return self._settle([Verdict(one.round, one.client, granted=False) for one in offers])

    def _settle(self, verdicts: Sequence[Verdict], reason: str = "") -> list[Verdict]:
        """Close the offers that have a verdict, and end the part of each declined client."""
        given = []
        for verdict in verdicts:
            client, offer = verdict.client, self._offers.settle(verdict)
            if offer is None and (verdict.granted or client not in self.dispatch.outstanding):
                continue
            given.append(verdict)
            if verdict.granted:
                continue
            if offer is None:
                self._drop(ClientReport(client, "declined", reason or NOT_OFFERED))
            else:
                metrics = {**offer.metrics, "norm": offer.norm}
                report = ClientReport(client, "declined", reason or DECLINED, metrics=metrics)
                self._drop(replace(report, samples=offer.samples))
        return given


def _place_of(error: Exception) -> tuple[str, int]:
    """Return file and line in which an error began."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return frame.filename, frame.lineno or 0


def _rejected(client: int, rejection: Rejected) -> ClientReport:
    code = CANNOT_TRAIN if isinstance(rejection, CannotTrain) else ""
    return ClientReport(client, "rejected", str(rejection), code=code)


class OfferBook:
    """The offers of one round, and the selector's verdicts on them.

    Args:
        selector: gives the verdicts.
        population: the population from which the plan of the round was made.
        state: state after the last round.
        simulated: whether the clients are simulated.

    Attributes:
        all: every offer of the round, by client, whatever its verdict.
        granted: the clients that may send their update.
        waiting: the clients that have a task and have neither offered nor been lost.
        open: the offers without a verdict, by client, in order of arrival.
    """

    def __init__(
        self,
        selector: Selector,
        population: Population,
        state: ServerState,
        simulated: bool = True,
    ) -> None:
        self._selector = selector
        self._population = population
        self._memory = state.memory.get(SELECT, {})
        self._simulated = simulated
        self._timer_s = self._fired_s = -math.inf  # time for which it was last set, and last fired
        self._so_far: Any = None  # the value that `on_offers` returned last
        self._listed: list[Offer] = []  # `open` as a list that grows: a copy for each call is slow
        self.all: dict[int, Offer] = {}
        self.granted: set[int] = set()
        self.waiting: dict[int, None] = {}
        self.open: dict[int, Offer] = {}

    def add(self, offer: Offer) -> None:
        """Add an offer that has passed its checks."""
        self.open[offer.client] = offer
        self._listed.append(offer)
        self.all[offer.client] = offer
        del self.waiting[offer.client]

    def remove(self, client: int) -> None:
        """Remove a client that will send nothing more."""
        self.open.pop(client, None)
        self.waiting.pop(client, None)

    def verdicts(self, now_s: float, timer_fired: bool = False) -> Sequence[Verdict]:
        """Return the selector's verdicts, `now_s` seconds after the round began."""
        if timer_fired:
            self._fired_s = self._timer_s
        pending = self._pending(now_s, timer_fired)
        verdicts, self._so_far = self._selector.on_offers(pending, self._so_far)
        return verdicts

    def timer_s(self, now_s: float) -> float | None:
        """Return when to ask the selector again if no event comes; None: never.

        A moment for which the timer has fired already does not count again.
        """
        if not self.open or not self.waiting:
            return None
        at_s = self._selector.wait_until(self._pending(now_s), self._so_far)
        if at_s is None or at_s <= self._fired_s:
            return None
        self._timer_s = at_s
        return at_s

    def _pending(self, now_s: float, timer_fired: bool = False) -> PendingOffers:
        if len(self._listed) != len(self.open):
            self._listed = list(self.open.values())
        return PendingOffers(
            self._listed,
            self.waiting.keys(),
            now_s,
            self._population,
            self._memory,
            self._simulated,
            timer_fired,
        )

    def settle(self, verdict: Verdict) -> Offer | None:
        """Close a client's offer with a verdict; return the offer, None if there was none."""
        offer = self.open.pop(verdict.client, None)
        if offer is not None and verdict.granted:
            self.granted.add(verdict.client)
        return offer
