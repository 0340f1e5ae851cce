"""One client's part in one round, replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fedmx.replay.breakpoints import Breakpoint
from fedmx.replay.one_part import OnePart, PartOver
from fedmx.replay.part_watcher import PartWatcher, Passage
from fedmx.replay.recorded_run import RecordedRun
from fedmx.replay.rerun import rerun
from fedmx.run import RunError
from fedmx.server.clients import FollowsCourse
from layers.compute.bits import one_blas_thread
from layers.logic import BrokenModel, ClientReport, TooFewUpdates, run_round


@dataclass(frozen=True)
class Part:
    """One client's part in one round, replayed.

    Attributes:
        round: number of the round.
        client: number of the client.
        passages: what each station made of its task and its update, in order.
        fate: what became of its update here; None: nothing did, since the round ended before.
        record: its record in the run; empty: there is none.
    """

    round: int
    client: int
    passages: tuple[Passage, ...]
    fate: ClientReport | None
    record: Mapping[str, Any]

    @property
    def sha256(self) -> tuple[str, ...]:
        """The SHA-256 (hex) of its updates here, one for each pass."""
        return tuple(one.sha256 for one in self.passages if one.station == "message")

    @property
    def recorded_sha256(self) -> tuple[str, ...] | None:
        """Those of the record; None: the run recorded none, or its update did not count."""
        return tuple(self.record.get("update_sha256", ())) or None

    def record_of_it(self) -> dict[str, Any]:
        """Return the part as plain values."""
        return {
            "round": self.round,
            "client": self.client,
            "stations": [one.record() for one in self.passages],
            "fate": None if self.fate is None else self.fate.status,
            "reason": "" if self.fate is None else self.fate.reason,
            "recorded_fate": self.record.get("status"),
            "recorded_reason": self.record.get("reason", ""),
            "update_sha256": list(self.sha256),
            "recorded_update_sha256": list(self.recorded_sha256 or ()),
        }

    @property
    def same(self) -> bool | None:
        """Whether the updates are the recorded ones; None: none are recorded."""
        recorded = self.recorded_sha256
        return None if recorded is None else recorded == self.sha256


@contextmanager
def stopping_at(run: RecordedRun, round: int, stop_at: str) -> Iterator[None]:
    """Let the debugger stop at a hook's method in one round, whichever client it works for."""
    stop = Breakpoint.of(stop_at, run.assembly.logic)
    run.assembly.watch(PartWatcher(round, None, breakpoint=stop))
    try:
        yield
    finally:
        run.assembly.watch(None)


def replay_part(
    run: RecordedRun,
    round: int,
    client: int,
    *,
    keep: bool = False,
    stop_at: str | None = None,
) -> Part:
    """Replay one client's part in one round, without the other clients where that is possible.

    The clients before it in its lane work, too. All do if they make offers or upload in turn, since
    then the others decide what a client is told.

    Args:
        run: the run; its executor is serial, so that the hooks work in this process.
        round: number of the round.
        client: number of the client.
        keep: whether the passages keep all arrays.
        stop_at: a hook's method to stop at in the debugger, as ``module:Class.method``.

    Raises:
        RunError: the round or the client's part in it does not exist, or cannot be run again here.
    """
    if run.experiment.executor.name != "serial":
        raise RunError("a client's part is replayed in this process; use executor=serial")
    stop = None if stop_at is None else Breakpoint.of(stop_at, run.assembly.logic)
    watcher = PartWatcher(round, client, keep, stop)
    run.assembly.watch(watcher)
    try:
        with rerun(run, round) as server, one_blas_thread():
            network, state = server.network, server.state
            if isinstance(network, FollowsCourse):
                state = network.starts_from(state)
            peers = OnePart(network, client, watcher)
            peers.population()  # as before every round
            with suppress(PartOver, TooFewUpdates, BrokenModel):  # the part is all that is wanted
                run_round(state, peers, server.logic, server.store)
    finally:
        run.assembly.watch(None)
    records = (one for one in run.folder.clients(round) if one.get("client") == client)
    fate = watcher.reports[-1] if watcher.reports else None
    return Part(round, client, tuple(watcher.passages), fate, next(records, {}))
