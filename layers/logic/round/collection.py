"""Collection: the round handles its events, and decides the fate of each update."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from layers.logic.core.declaration import Need
from layers.logic.core.messages import CANNOT_TRAIN, EMPTY, Offer, Task, Update, Verdict
from layers.logic.core.report import ClientReport, Times, Traffic
from layers.logic.core.round import OpenRound, PlannedLane
from layers.logic.core.trainer import LocalSgd
from layers.logic.errors import CannotTrain, Rejected, reason_of
from layers.logic.numeric.vectors import largest
from layers.logic.record_size import REASON_BYTES, TRACEBACK_BYTES, shortened
from layers.logic.round.exchange import Cancel, ClientLost, Costs, SendTask, StateLost
from layers.logic.round.lanes import Dispatch, Fold, Lane
from layers.logic.round.logic import Logic
from layers.logic.round.patience import silence
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.round.port import Port
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
NOTHING: Mapping[int, str] = MappingProxyType({})


class Collection:
    """Takes the events of one round, in any order, and says what follows from them.

    Args:
        round: the round as its algorithm sees it: who has returned, and which offers are open.
        dispatch: makes the tasks, and knows which are outstanding.
        fold: folds the lanes that have ended.
        pipeline: decodes updates.
        logic: logic of the experiment.
        port: takes commands, and knows how many samples a client has announced.
        untrusted: whether clients are processes of others (see `Carrier.untrusted`).

    Attributes:
        dispatch, fold: as given.
        news: the events that the algorithm has not seen yet: offers, and the reports of clients
            whose part has ended without its doing.
        outcomes: the reports of the clients whose part has ended, by client.
        earlier: the reports of tasks that ended before another task of the same client did.
        accounts: the costs of the round until now.
        passed: the reports of the clients whose updates were accepted in passes before their last
            one, by client.
    """

    def __init__(
        self,
        round: OpenRound,
        dispatch: Dispatch,
        fold: Fold,
        pipeline: ServerPipeline,
        logic: Logic,
        port: Port,
        untrusted: bool,
    ) -> None:
        self._round = round
        self.dispatch = dispatch
        self.fold = fold
        self._pipeline = pipeline
        self._port = port
        self._logic, self._local_tensors = logic, logic.local_tensors
        # How many steps another trainer takes is not known here.
        self._knows_steps = logic.needs(Need.STEPS) and isinstance(logic.trainer, LocalSgd)
        self._asynchronous, self._untrusted = logic.asynchronous, untrusted
        self.news: deque[Offer | ClientReport] = deque()
        self._offered: dict[int, Offer] = {}  # every offer of the round, whatever its verdict
        self._granted: set[int] = set()
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
    def planned(self) -> list[int]:
        """The clients of the round, lane by lane."""
        return [client for lane in self.dispatch.lanes for client in lane.clients]

    @property
    def accepted(self) -> list[int]:
        """The clients whose updates were accepted so far, lane by lane."""
        outcomes = self.outcomes
        return [
            one for one in self.planned if one in outcomes and outcomes[one].status == "accepted"
        ]

    @property
    def groups(self) -> dict[int, str]:
        """The group of each client whose update was accepted."""
        lane_of = self.dispatch.lane_of
        return {client: lane_of(client).planned.group for client in self.accepted}

    @property
    def cut_off(self) -> set[int]:
        """The clients that have ended before their last pass, and whose earlier updates count."""
        return self.passed.keys() - set(self.accepted) if self.passed else set()

    @property
    def lost(self) -> list[int]:
        """The clients that were lost in this round."""
        reports = (*self.earlier, *self.outcomes.values())
        return [one.client for one in reports if one.status == "lost"]

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
        outcomes = self.outcomes
        order = outcomes if self._asynchronous else self.planned
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

    def begin(self, planned: Sequence[PlannedLane], excluded: Mapping[int, str] = NOTHING) -> None:
        """Begin lanes, and send the task of the first client of each.

        Args:
            planned: the lanes.
            excluded: their clients that get no task, each with the reason.
        """
        for client, reason in excluded.items():
            self.outcomes[client] = ClientReport(client, "lost", reason)
        tasks = self.dispatch.begin(planned, excluded)
        self._round.offers_due |= {task.client: None for task in tasks if task.offer}
        self._send(tasks)

    def on_offer(self, offer: Offer) -> None:
        """Process an offer."""
        client, task = offer.client, self.dispatch.outstanding.get(offer.client)
        self._port.waiting.pause(client)  # until the verdict it is the server's turn
        if task is None or not task.offer or offer.round != task.round:
            return
        if client in self._granted:  # the client reconnected after its grant
            self._put(Verdict(task.round, client, granted=True))
        elif client not in self._round.offers:
            try:
                check_offer(offer, *self._samples(client))
            except Rejected as rejection:
                self._drop(_rejected(client, rejection))
                self._put(Verdict(task.round, client, granted=False))
            else:
                self._round.offers[client] = self._offered[client] = offer
                del self._round.offers_due[client]
                self.news.append(offer)

    def on_update(self, update: Update) -> None:
        """Process an update; send the task of the next client in its lane, if there is one."""
        self._port.waiting.answered(update.client, self._port.now_s)
        task = self.dispatch.outstanding.get(update.client)
        if task is None:
            self._note_unexpected(update)
            return
        lane = self.dispatch.lane_of(update.client)
        try:
            decoded, peak = self._decode(update, task, lane)
        except Rejected as rejection:
            self._drop(_rejected(update.client, rejection))
            return
        except Exception as error:
            if not self._untrusted:
                raise
            trace = shortened(traceback.format_exc(), TRACEBACK_BYTES, from_end=True)
            self._failed.setdefault(_place_of(error), set()).add(update.client)
            reason = f"the server's side of a hook failed on it: {reason_of(error)}"
            self._drop(ClientReport(update.client, "rejected", reason, trace))
            return
        report = ClientReport(
            update.client,
            "accepted",
            samples=update.samples,
            steps=update.steps,
            metrics={**decoded.metrics, **self._offered_norm(update.client)},
            peak=peak,
        )
        lane.add(decoded)
        self._end(report)

    def on_client_lost(self, lost: ClientLost) -> None:
        """Record that a client was lost; send the task of the next client in its lane."""
        if lost.client not in self.dispatch.outstanding:
            return
        status: Literal["rejected", "lost"] = "rejected" if lost.rejected else "lost"
        norm = self._offered_norm(lost.client)
        self._drop(ClientReport(lost.client, status, lost.reason, lost.traceback, metrics=norm))

    def on_state_lost(self, lost: StateLost) -> None:
        """Send a task without earlier memory to a client that lost its memory."""
        self._send(self.dispatch.retry(lost))

    def give_up(self, client: int) -> None:
        """Give up a client that was silent for too long."""
        waiting = self._port.waiting
        reason = silence(waiting.limit_of(client), waiting.offend(client, self._port.now_s))
        task = self.dispatch.outstanding.get(client)
        if task is not None:
            self._port.put(Cancel(client, reason))
            self.on_client_lost(ClientLost(task.round, client, reason))

    def answer(self, verdict: Verdict, reason: str = "") -> None:
        """Send a verdict on an offer, or on a client that has not offered; end a declined part.

        Args:
            verdict: the verdict; the number of the task is filled in.
            reason: why the client is declined; empty: it was not chosen.
        """
        client = verdict.client
        task, offer = self.dispatch.outstanding.get(client), self._round.offers.pop(client, None)
        if task is None or (offer is None and verdict.granted):
            return
        if verdict.granted:
            self._granted.add(client)
        elif offer is None:
            self._end(ClientReport(client, "declined", reason or NOT_OFFERED), news=False)
        else:
            metrics = {**offer.metrics, "norm": offer.norm}
            report = ClientReport(client, "declined", reason or DECLINED, metrics=metrics)
            self._end(replace(report, samples=offer.samples), news=False)
        self._put(replace(verdict, round=task.round))

    def decline(self, group: str | None = None) -> None:
        """Decline all clients of a group that have not returned; None: of all groups."""
        lanes = [one for one in self.dispatch.lanes if group in (None, one.planned.group)]
        self._end_lanes(lanes, "declined", ENOUGH)
        tasks = self.dispatch.outstanding
        for client in [one for lane in lanes for one in lane.clients if one in tasks]:
            self.answer(Verdict(0, client, granted=False), ENOUGH)

    def close(self) -> None:
        """End the round for the clients that are left."""
        for offer in list(self._round.offers.values()):
            self.answer(Verdict(0, offer.client, granted=False))
        self._end_lanes(self.dispatch.lanes, "lost", NOT_REACHED)
        if self._asynchronous:
            return
        left = list(self.dispatch.outstanding.items())
        for client, task in left:
            self.on_client_lost(ClientLost(task.round, client, NO_ANSWER))
        self._port.put(*(Cancel(client) for client, _ in left))

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

    def _send(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._port.waiting.ask(task.client, self._port.now_s)
            self._port.put(SendTask(task))

    def _put(self, verdict: Verdict) -> None:
        if verdict.granted:
            self._port.waiting.ask(verdict.client, self._port.now_s)
        else:
            self._port.waiting.pause(verdict.client)
        self._port.put(verdict)

    def _decode(self, update: Update, task: Task, lane: Lane) -> tuple[Update, float]:
        """Return an update, checked and decoded, and how far it goes (see `check_content`).

        Raises:
            Rejected: it fails a check.
        """
        announced, most = self._samples(update.client)
        steps = task.training.steps_over(most) if self._knows_steps else None
        check_slots(update.slots, self._pipeline)
        check_envelope(update, task, announced, most, steps)
        if task.offer and update.client not in self._granted:
            raise Rejected("an update whose offer was not granted")
        if self._local_tensors is not None:
            update = self._local_tensors.expand(update, lane.buffers)
        most_staleness = self._logic.aggregator.most_staleness
        if most_staleness is not None and lane.staleness > most_staleness:
            raise Rejected(f"staleness {lane.staleness}, above the limit {most_staleness}")
        decoded = self._pipeline.receive(update)
        if self._pipeline.masked:
            check_masked(decoded)
            return decoded, 0.0
        if lane.weights is not self._measured[0]:  # most lanes start from the same ones
            self._measured = lane.weights, largest(lane.weights)
        peak = check_content(decoded, *self._measured, lane.buffers, self._logic.max_update)
        if self._local_tensors is not None:
            decoded = replace(decoded, delta=self._local_tensors.travelling(decoded.delta))
        self._logic.aggregator.inspect(decoded)
        return decoded, peak

    def _samples(self, client: int) -> tuple[int, int]:
        """Return how many samples a client announced, and how many hooks can make of them."""
        announced = self._port.samples_of(client)
        return announced, self._pipeline.most_samples(client, announced)

    def _offered_norm(self, client: int) -> dict[str, float]:
        """Return the norm in a client's offer, which the selection used; empty without an offer."""
        offer = self._offered.get(client)
        return {} if offer is None else {"norm": offer.norm}

    def _note_unexpected(self, update: Update) -> None:
        known = self.outcomes.get(update.client, self.passed.get(update.client))
        reason = "not asked" if known is None else f"another update of a client {known.status}"
        report = ClientReport(update.client, "rejected", f"{reason} in this round")
        self._unexpected.append(report)

    def _drop(self, report: ClientReport) -> None:
        """End the part of a client without an update."""
        self._end(replace(report, reason=shortened(report.reason, REASON_BYTES)))

    def _end(self, report: ClientReport, news: bool = True) -> None:
        """End a client's part, fold what can be folded, and go on with its lane.

        Args:
            report: on the client.
            news: whether the algorithm does not know it yet.
        """
        client, round = report.client, self._round
        task = self.dispatch.outstanding[client]
        lane = self.dispatch.end(client)
        round.offers.pop(client, None)
        round.offers_due.pop(client, None)
        offer = self._offered.get(client)
        report = replace(self._with_passes_before(report), task_round=task.round, offer=offer)
        if self._asynchronous:
            report = replace(report, version=task.model_version, staleness=lane.staleness)
        if report.status == "accepted" and lane.passes > 1 and client in lane.waiting:
            self.passed[client] = report
        else:
            lane.leave(client)
            if client in self.outcomes:  # an asynchronous round has asked it again
                self.earlier.append(self.outcomes.pop(client))
            self.outcomes[client] = report
            if news:
                self.news.append(report)
        tasks = self.dispatch.next(lane)
        lane.ended = not tasks
        if not tasks and lane.updates:
            round.returned[lane.planned.group] += 1
            self.fold.keep(lane)
        self.fold.advance()
        self._send(tasks)

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


def _place_of(error: Exception) -> tuple[str, int]:
    """Return file and line in which an error began."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return frame.filename, frame.lineno or 0


def _rejected(client: int, rejection: Rejected) -> ClientReport:
    code = CANNOT_TRAIN if isinstance(rejection, CannotTrain) else ""
    return ClientReport(client, "rejected", str(rejection), code=code)
