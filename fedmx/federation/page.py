"""The web page of a federation: its sites, its queue, its jobs and its last events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from fedmx.federation.ledger import DONE, FAILED, QUEUED, RUNNING
from fedmx.report.html import Child, Html, card, document, element, join, table
from fedmx.version import __version__

RELOADED_S = 5
LATE_S = 60.0  # without news from the server
_NAMED = 8  # sites in a cell; of more, the number
_LOOKS = {DONE: "done", FAILED: "failed", RUNNING: "running"}  # classes of the report's style


def page_of(
    published: Mapping[str, Any], reports: Sequence[str], now_s: float, *, still: bool = False
) -> str:
    """Return the page of what a server published; each text in it is escaped.

    Args:
        published: see `fedmx.federation.page_process.published`.
        reports: the jobs that have a report.
        now_s: the time, in seconds since 1970.
        still: whether it stays as it is, and does not reload itself.
    """
    jobs = sorted(published["jobs"], key=lambda job: (len(job["id"]), job["id"]))
    sites = sorted(published["sites"], key=lambda site: site["name"])
    queue = [one for one in jobs if one["state"] == QUEUED]
    others = [one for one in reversed(jobs) if one["state"] != QUEUED]
    here = sum(bool(one["address"]) for one in sites)
    running = sum(one["state"] == RUNNING for one in jobs)
    parts = [
        element("header", element("h1", "Federation"), *_state_lines(published, now_s, still)),
        element(
            "div",
            card("Sites", str(here), f"connected, of {len(sites)}"),
            card("Queue", str(published["queued"]), "jobs wait"),
            card("Running", str(running)),
            card("Jobs", str(published["all"]), "in all"),
            class_="cards",
        ),
        _section("Sites", ["site", "state", "fedmx", "last heard", "data"], map(_site_row, sites)),
        _section(
            "Queue", ["job", "experiment", "operator", "submitted", "replies"], map(_row, queue)
        ),
        _section(
            "Jobs",
            [
                "job",
                "experiment",
                "operator",
                "state",
                "sites",
                "began",
                "ended",
                "replies",
                "report",
            ],
            (_job_row(one, one["id"] in reports) for one in others),
        ),
        _section(
            "Events", ["time", "who", "what", "details"], map(_event_row, published["events"])
        ),
        element("footer", f"fedmx {__version__}. Read-only. Times are UTC."),
    ]
    return document("federation", "\n".join(parts), None if still else RELOADED_S)


def _state_lines(published: Mapping[str, Any], now_s: float, still: bool) -> list[Html]:
    at = join(f"{published['address']}, as of ", _moment(published["at_s"]), " UTC. ")
    every = f"every {RELOADED_S} s"
    if still:
        told = element("a", f"Reload it {every}", href="./")
    else:
        stop = element("a", "keep it still", href="?still")
        told = join(f"This page reloads itself {every}: ", stop)
    lines = [element("p", at, told, ".", class_="quiet")]
    if now_s - published["at_s"] > LATE_S:
        lines.append(element("p", "The server has told nothing since.", class_="status failed"))
    if published["stopped"]:
        text = f"{published['stopped']}; the queue waits."
        lines.append(element("p", text, class_="status failed"))
    return lines


def _section(title: str, head: list[Child], rows: Iterable[list[Child]]) -> Html:
    found = list(rows)
    shown = table(head, found, class_="reasons") if found else element("p", "None.", class_="quiet")
    return element("section", element("h2", title), shown)


def _site_row(site: Mapping[str, Any]) -> list[Child]:
    data = ", ".join(site["data"])
    return [site["name"], site["state"], site["version"], _moment(site["seen_s"]), data]


def _row(job: Mapping[str, Any]) -> list[Child]:
    submitted = _moment_of(job["submitted"])
    return [job["id"], job["name"], job["operator"], submitted, _replies(job)]


def _job_row(job: Mapping[str, Any], has_report: bool) -> list[Child]:
    state = element("span", job["state"], class_=f"status {_LOOKS.get(job['state'], 'quiet')}")
    reason = f": {job['reason']}" if job["reason"] else None
    report = element("a", "report", href=f"jobs/{job['id']}/report.html") if has_report else None
    return [
        job["id"],
        job["name"],
        job["operator"],
        join(state, reason),
        _names(job["sites"]),
        _moment_of(job["began"]),
        _moment_of(job["ended"]),
        _replies(job),
        report,
    ]


def _replies(job: Mapping[str, Any]) -> str:
    sites: dict[str, list[str]] = {}
    for site, said in job["replies"].items():
        sites.setdefault(said, []).append(site)
    return "; ".join(f"{_names(who)} {said}" for said, who in sites.items())


def _names(sites: Sequence[str]) -> str:
    return ", ".join(sites) if len(sites) <= _NAMED else f"{len(sites)} sites"


def _event_row(line: Mapping[str, Any]) -> list[Child]:
    others = {key: value for key, value in line.items() if key not in ("time", "who", "what")}
    details = ", ".join(f"{key}: {_plain(value)}" for key, value in others.items() if value)
    return [_moment_of(line["time"]), line["who"], line["what"], details]


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _moment(seconds: float) -> Html:
    return _time(datetime.fromtimestamp(seconds, timezone.utc))


def _moment_of(text: str) -> Html | None:
    return _time(datetime.fromisoformat(text)) if text else None


def _time(at: datetime) -> Html:
    return join(element("time", f"{at:%Y-%m-%d}"), f" {at:%H:%M:%S}")
