"""The part of a page that says who took part, who failed, and why."""

from __future__ import annotations

from fedmx.report.figures.html import Child, Html, element, join, table
from fedmx.report.records.participation import STATUSES, Participation
from fedmx.report.records.quantities import NOTHING, mebibytes
from fedmx.report.records.summary import RunSummary

_MOST_CLIENTS = 15
_MOST_FAILURES = 10


def participation_section(run: RunSummary, label: str | None) -> Html | None:
    """Spread, failures and a table of clients; None when the run has no client records."""
    people = run.participation
    if not people.clients:
        return None
    least, median, most = people.spread()
    total = run.settings.get("clients", len(people.clients))
    counted = sum(1 for client in people.clients if client.times["accepted"])
    said = f"{counted} of {total} clients had updates counted"
    said += f", between {least} and {most} each (median {median:g})."
    troubled = sum(1 for client in people.clients if client.failures)
    if not people.failures:
        said += " No update was refused and no client was lost."
    heading = "Clients" if label is None else f"Clients of {label}"
    return element(
        "section",
        element("h2", heading),
        element("p", said),
        _failures(people),
        element(
            "details",
            element("summary", _which_clients(people, troubled)),
            _clients(people),
            open="" if troubled and label is None else None,
        ),
    )


def _which_clients(people: Participation, troubled: int) -> str:
    shown = min(_MOST_CLIENTS, len(people.clients))
    order = "those that failed most often first" if troubled else "the most active first"
    return f"{shown} of {len(people.clients)} clients, {order}"


def _clients(people: Participation) -> Html:
    head: list[Child] = [
        "client",
        "accepted",
        "rejected",
        "lost",
        "declined",
        "samples",
        "up",
        "down",
    ]
    rows: list[list[Child]] = [
        [
            client.client,
            *(client.times[status] for status in STATUSES),
            NOTHING if client.samples is None else f"{client.samples:,}",
            mebibytes(client.up_bytes),
            mebibytes(client.down_bytes),
        ]
        for client in people.clients[:_MOST_CLIENTS]
    ]
    return table(head, rows, class_="numbers")


def _failures(people: Participation) -> Html | None:
    if not people.failures:
        return None
    rows: list[list[Child]] = []
    for failure in people.failures[:_MOST_FAILURES]:
        details = None
        if failure.traceback:
            details = element(
                "details", element("summary", "traceback"), element("pre", failure.traceback)
            )
        last = f"client {failure.client}, round {failure.round}"
        rows.append([failure.status, failure.times, last, join(failure.reason, details)])
    more = len(people.failures) - len(rows)
    return join(
        table(["", "times", "last", "reason"], rows, class_="reasons"),
        element("p", f"and {more} more reasons", class_="quiet") if more > 0 else None,
    )
