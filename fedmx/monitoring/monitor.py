"""A server's clients at one moment."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmx.log import Log
from fedmx.quantities import OF_CLASSES, Quantity, last_values
from fedmx.run.durable import mode_in


@dataclass(frozen=True)
class ClientsNow:
    """A server's clients at one moment. Times are seconds since 1970.

    Attributes:
        address: the address on which the server listens; None: not known.
        number: the run's number of clients; None: any number.
        ready: the clients that are connected and ready.
        away: the clients that left and may come back, with the times at which they left.
        waiting_for: clients, answers or updates; empty: the server does not wait.
        waited_for: the clients that the server waits for.
        since: the start of the wait.
        received_bytes: bytes from clients in this process, frames of every kind.
        sent_bytes: bytes to clients in this process, frames of every kind.
        refused_connections: connections that were refused, or closed because of their content.
        reconnections: the number of times that a ready client came back.
        certificates: the TLS files, with their kinds (`what`), paths, the times at which they end
            (`expires`, ISO 8601), and the warnings about those that end soon.
        paused: whether an operator has paused the run.
        excluded: the clients that are not asked any more.
    """

    address: str | None
    number: int | None = None
    ready: tuple[int, ...] = ()
    away: Mapping[int, float] = field(default_factory=dict)
    waiting_for: str = ""
    waited_for: tuple[int, ...] = ()
    since: float = 0.0
    received_bytes: int = 0
    sent_bytes: int = 0
    refused_connections: int = 0
    reconnections: int = 0
    certificates: tuple[Mapping[str, Any], ...] = ()
    paused: bool = False
    excluded: tuple[int, ...] = ()


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int | None = None) -> int | None:
    """Return the resident memory of this or another process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii")
    except OSError:
        return None
    return int(text.split()[1]) * PAGE_BYTES


FORMAT = 1
BUCKETS_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 14400.0)
FATES = ("accepted", "rejected", "declined", "lost")
RECENT_ROUNDS = 20  # for the number of updates in a second


def of_clients(now: ClientsNow) -> dict[str, Any]:
    """Return the part of a status that is about clients."""
    waiting = {
        "for": now.waiting_for,
        "clients": list(now.waited_for),
        "since": timestamp(now.since),
    }
    return {
        "paused": now.paused,
        "excluded": list(now.excluded),
        "clients": now.number,
        "ready": list(now.ready),
        "away": {str(client): timestamp(since) for client, since in now.away.items()},
        "waiting": waiting if now.waiting_for else None,
        "received_bytes": now.received_bytes,
        "sent_bytes": now.sent_bytes,
        "refused_connections": now.refused_connections,
        "reconnections": now.reconnections,
        "certificates": [dict(one) for one in now.certificates],
        "address": now.address,
    }


def of_rounds(
    recent: Collection[Mapping[str, Any]], measured: Mapping[str, Any], updates: Mapping[str, int]
) -> dict[str, Any]:
    """Return the part of a status that is about rounds, as JSON values.

    `in_flight`, `staleness` and `updates_per_s` are None for rounds that wait. The number of tasks
    in flight and the mean staleness are those of the last round.

    Args:
        recent: the records of the last rounds.
        measured: see `fedmx.quantities.last_values`.
        updates: the number of updates with each of `FATES`.
    """
    *_, last = recent or ({},)
    staleness, seconds = last.get("staleness"), sum(one["seconds"] for one in recent)
    waits = last.get("in_flight") is None
    return {
        "rounds_done": last.get("round", 0),
        **dict.fromkeys(("accuracy", "loss", "epsilon")),
        **measured,
        "suspended": dict(last.get("suspended", {})),
        "updates": dict(updates),
        "in_flight": last.get("in_flight"),
        "staleness": sum(staleness) / len(staleness) if staleness else None,
        "updates_per_s": None
        if waits or not seconds
        else sum(one["updates"] for one in recent) / seconds,
    }


def fates_of(record: Mapping[str, Any]) -> Counter[str]:
    """Return the number of a round's updates with each of `FATES`."""
    return Counter(accepted=len(record["participants"]), **{one: record[one] for one in FATES[1:]})


@dataclass(frozen=True)
class RoundCounts:
    """The finished rounds of this process.

    Attributes:
        rounds: their number.
        seconds: the sum of their durations.
        buckets: for each of `BUCKETS_S`, the number of rounds that took at most that time.
        updates: the number of updates with each of `FATES`.
    """

    rounds: int
    seconds: float
    buckets: tuple[int, ...]
    updates: Mapping[str, int]


class Monitor:
    """Records a server's rounds, and returns its status to any thread.

    Args:
        run: the run's own name, a hash.
        name: the name of the experiment.
        rounds: the number of the last round.
        clients: returns the clients at this moment; called by any thread.

    Attributes:
        metrics: those of the model; the first one stands for it.
    """

    def __init__(self, run: str, name: str, rounds: int, clients: Callable[[], ClientsNow]) -> None:
        self.run = run
        self.name = name
        self.rounds = rounds
        self.clients = clients
        self.metrics: Sequence[Quantity] = OF_CLASSES
        self.started = time.time()
        self._lock = threading.Lock()
        self._under_way: int | None = None
        self._awaits = ""
        self._done = 0
        self._measured: dict[str, Any] = {}
        self._rounds = 0
        self._seconds = 0.0
        self._buckets = [0] * len(BUCKETS_S)
        self._updates: Counter[str] = Counter()
        self._recent: deque[Mapping[str, Any]] = deque(maxlen=RECENT_ROUNDS)
        self._reason = ""

    def goes_on_after(self, round: int) -> None:
        """Record the round after which this process resumes."""
        with self._lock:
            self._done = round

    def begun(self, round: int) -> None:
        """Record the start of a round."""
        with self._lock:
            self._under_way = round

    def awaits(self, what: str) -> None:
        """Record what the round waits for, in words; empty: its algorithm does not say."""
        self._awaits = what

    def concluded(self, record: Mapping[str, Any], reason: str) -> None:
        """Record the end of a round, and why the run has ended (empty: it has not)."""
        with self._lock:
            self._under_way, self._awaits = None, ""
            self._done = record["round"]
            self._reason = reason
            self._recent.append(record)
            self._rounds += 1
            self._seconds += record["seconds"]
            for number, limit in enumerate(BUCKETS_S):
                self._buckets[number] += record["seconds"] <= limit
            self._updates += fates_of(record)
            self._measured |= last_values([record], self.metrics)

    def counts(self) -> RoundCounts:
        """Return the counts."""
        with self._lock:
            updates = {fate: self._updates[fate] for fate in FATES}
            return RoundCounts(self._rounds, self._seconds, tuple(self._buckets), updates)

    def status(self) -> dict[str, Any]:
        """Return the status as JSON values; times are in UTC."""
        now, counts = self.clients(), self.counts()
        with self._lock:
            under_way, done, reason = self._under_way, self._done, self._reason
            rounds = of_rounds(self._recent, self._measured, counts.updates)
        return {
            "format": FORMAT,
            "time": timestamp(time.time()),
            "run": self.run,
            "state": "running" if not reason else "done",
            "reason": reason,
            "round": under_way,
            "awaits": self._awaits,
            "rounds": self.rounds,
            "metrics": [one.fact() for one in self.metrics],
            **rounds,
            "rounds_done": done,
            **of_clients(replace(now, waiting_for="") if reason else now),
            "memory_bytes": resident_bytes(),
            "started": timestamp(self.started),
            "pid": os.getpid(),
        }


def timestamp(seconds: float) -> str:
    """Return seconds since 1970 as text, in UTC (ISO 8601)."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds")


log = Log("fedmx.run")
EVERY_S = 1.0


class LiveFile:
    """Rewrites a status file every second inside a with statement; the last status stays.

    A write error is logged once and does not end the run.

    Args:
        path: the file.
        status: returns the status; called in a background thread.
    """

    def __init__(self, path: Path, status: Callable[[], Mapping[str, Any]]) -> None:
        self._path = path
        self._status = status
        self._over = threading.Event()
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="fedmx-status", daemon=True)

    def __enter__(self) -> LiveFile:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while True:
            self._write()
            if self._over.wait(EVERY_S):
                return

    def _write(self) -> None:
        # Not synced: the status does not matter after a power cut. The run folder does not remove
        # files with this name.
        temporary = self._path.with_name(f".{self._path.name}.new")
        try:
            temporary.touch(mode_in(self._path.parent))
            temporary.write_text(json.dumps(self._status()) + "\n", encoding="utf-8")
            os.replace(temporary, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if not self._warned:
                self._warned = True
                log.warning(
                    "status_not_written",
                    "{path}: cannot write the status ({reason})",
                    path=self._path,
                    reason=error.strerror,
                )
