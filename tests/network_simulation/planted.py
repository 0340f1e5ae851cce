"""Planted bugs; the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fedmx.client.participant import ClientMemory
from fedmx.deployment.client_sessions import ClientSessions
from fedmx.server.recorder import FolderRecorder
from layers.logic import ClientLedger, Contribution, Task, Update
from layers.logic.round.collection import Collection
from layers.logic.round.lanes import Fold, Lane


@contextmanager
def acknowledges_before_the_write() -> Iterator[None]:
    """The server sends the next tasks before it writes the previous round's checkpoint."""
    waiting: dict[int, tuple[Any, Any]] = {}
    write = FolderRecorder.record

    def record(recorder: FolderRecorder, round: Any, checkpoint: Any) -> None:
        key = id(recorder)
        if key in waiting:
            write(recorder, *waiting.pop(key))
        if round.round == recorder.last_round:
            write(recorder, round, checkpoint)
        else:
            waiting[key] = round, checkpoint

    with patch.object(FolderRecorder, "record", record):
        yield


@contextmanager
def sends_before_the_write() -> Iterator[None]:
    """A client sends its update, but writes its ledger only at its next training."""
    write = ClientMemory.keep

    def keep(memory: ClientMemory, ledger: ClientLedger) -> None:
        before = memory._kept
        if before is not None:
            write(memory, before)
        memory._kept = ledger

    with patch.object(ClientMemory, "keep", keep):
        yield


@contextmanager
def counts_a_repeated_update() -> Iterator[None]:
    """A repeated update is added again."""
    take, fold = Collection.on_update, Fold._fold

    def folded(self: Fold, lane: Lane) -> None:
        contributions = []
        make = lane.contribution

        def contribution(training: Any) -> Contribution:
            contributions.append(make(training))
            return contributions[0]

        lane.contribution = contribution  # type: ignore[method-assign]
        fold(self, lane)
        lane.folded = contributions  # type: ignore[attr-defined]

    def on_update(collection: Collection, update: Update) -> Any:
        known = collection.outcomes.get(update.client)
        if known is not None and known.status == "accepted":
            lane, total = collection.dispatch.lane_of(update.client), collection.fold
            for contribution in getattr(lane, "folded", ()):
                total._total = total._aggregator.add(total._total, contribution)
        return take(collection, update)

    with patch.object(Collection, "on_update", on_update), patch.object(Fold, "_fold", folded):
        yield


@contextmanager
def forgets_a_residual() -> Iterator[None]:
    """A restarted client remembers its rounds, but not the memory of its hooks."""
    read = ClientLedger.of_tree

    def of_tree(tree: Mapping[str, Any]) -> ClientLedger:
        ledger = read(tree)
        pending = ledger.pending
        return replace(ledger, pending=pending and replace(pending, memory={}))

    with patch.object(ClientLedger, "of_tree", staticmethod(of_tree)):
        yield


@contextmanager
def folds_in_order_of_arrival() -> Iterator[None]:
    """A lane is folded as soon as it has ended, before slower lanes that stand before it."""

    def advance(fold: Fold) -> None:
        for lane in fold._lanes if not fold._wait else ():
            if lane.ended and not getattr(lane, "is_folded", False):
                lane.is_folded = True  # type: ignore[attr-defined]
                fold._fold(lane)

    def rest(fold: Fold, by_task: bool = False) -> None:
        fold._wait = False
        advance(fold)

    with patch.object(Fold, "advance", advance), patch.object(Fold, "rest", rest):
        yield


@contextmanager
def believes_every_memory() -> Iterator[None]:
    """The server sends a client a task for a memory that the client has not said that it has."""
    send = ClientSessions.send_task

    def send_task(sessions: ClientSessions, task: Task) -> None:
        sessions.memory_rounds.setdefault(task.client, set()).add(task.last_accepted_round)
        send(sessions, task)

    with patch.object(ClientSessions, "send_task", send_task):
        yield


@contextmanager
def writes_the_ledger_in_some_rounds() -> Iterator[None]:
    """A client writes its ledger after every second update only."""
    keep = ClientMemory.keep

    def kept(memory: ClientMemory, ledger: ClientLedger) -> None:
        if ledger.pending is not None and ledger.pending.round % 2:
            keep(memory, ledger)
        else:
            memory._kept = ledger

    with patch.object(ClientMemory, "keep", kept):
        yield


PLANTED: Mapping[str, Callable[[], Any]] = {
    "acknowledges-before-the-write": acknowledges_before_the_write,
    "sends-before-the-write": sends_before_the_write,
    "counts-a-repeated-update": counts_a_repeated_update,
    "forgets-a-residual": forgets_a_residual,
    "folds-in-order-of-arrival": folds_in_order_of_arrival,
    "believes-every-memory": believes_every_memory,
    "writes-the-ledger-in-some-rounds": writes_the_ledger_in_some_rounds,
}
