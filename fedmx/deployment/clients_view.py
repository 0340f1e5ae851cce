"""What an operator sees of a deployed run's clients, at any moment and from any thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import TypeVar

from fedmx.deployment.client_sessions import ClientSessions
from fedmx.monitoring.monitor import ClientsNow
from layers.logic import Task

T = TypeVar("T")


def clients_now(
    sessions: ClientSessions, waiting: tuple[str, float], outstanding: Mapping[int, Task]
) -> ClientsNow:
    """Return the clients at this moment.

    Args:
        sessions: their sessions.
        waiting: what the server waits for (clients, answers or updates), and since when, in seconds
            since 1970.
        outstanding: the tasks of the round.
    """
    what, since = waiting
    membership, waited_for = sessions.membership, set[int]()
    if what == "clients":
        waited_for = set(range(sessions.clients or 0)) - set(_copy(membership.samples))
    elif what == "answers":
        waited_for = set(_copy(sessions.questions))
    elif what == "updates":
        waited_for = set(_copy(outstanding))
    # The time of leaving is monotonic; an operator's clock is not.
    ahead_s = time.time() - time.monotonic()
    left = dict(_copy(membership.disconnected.items()))
    traffic = sessions.listener.traffic()
    return ClientsNow(
        address=sessions.listener.address,
        number=sessions.clients,
        ready=tuple(sorted(_copy(membership.ready))),
        away={
            client: max(since_s + ahead_s, 0.0)
            for client, since_s in sorted(left.items())
            if client not in membership.barred
        },
        waiting_for=what if waited_for else "",
        waited_for=tuple(sorted(waited_for)),
        since=since,
        received_bytes=traffic.received_bytes,
        sent_bytes=traffic.sent_bytes,
        refused_connections=sessions.refused_connections,
        reconnections=membership.rejoined,
    )


def _copy(values: Iterable[T]) -> tuple[T, ...]:
    """Return the values of a collection that the server's thread may change meanwhile."""
    while True:
        with contextlib.suppress(RuntimeError):  # it has changed: once more
            return tuple(values)
