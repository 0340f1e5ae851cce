"""The web page of a federation: what it shows, and to whom; the federation outlives it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedmx.errors import FedmxError
from fedmx.federation import page_process
from fedmx.federation.ledger import Job, Ledger
from fedmx.federation.offers import Site
from fedmx.federation.page import LATE_S, page_of
from fedmx.federation.page_process import NAME, PageProcess, application
from fedmx.report.html import document, script
from layers.extras import install
from layers.network import AddressError
from tests.fedmx.processes import until
from tests.fedmx.standing import Standing, experiment

TOKEN = "a token of the tests"


class Page(HTMLParser):
    """The rows of each table, by the heading above it, the links, and what a page must not have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self.links: list[str] = []
        self.forbidden: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.forbidden += [tag] * (tag in ("script", "iframe", "form", "img", "link"))
        self.forbidden += [name for name, _ in attrs if name.startswith("on")]
        self.links += [value or "" for name, value in attrs if name == "href"]
        self._open.append(tag)
        if tag == "h2":
            self._heading = ""
        if tag == "tr":
            self.rows.setdefault(self._heading, []).append([])
        if tag in ("td", "th"):
            self.rows[self._heading][-1].append("")

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._open[-1:] == ["h2"]:
            self._heading = data
        elif {"td", "th"} & {*self._open}:
            self.rows[self._heading][-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass


def test_readers_with_the_token_see_sites_jobs_and_live_reports(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with Standing(tmp_path) as standing:
        server = standing.serve("--page", "0.0.0.0:0", "--page-token-file", str(token))
        port = server.line("page at https://").rstrip("/").rpartition(":")[2]
        context = ssl.create_default_context(cafile=standing.certificates.folder / "ca.pem")

        def get(path: str, credentials: str = f"Bearer {TOKEN}") -> tuple[int, str]:
            url = f"https://127.0.0.1:{port}/{path}"
            request = urllib.request.Request(url, headers={"Authorization": credentials})
            try:
                with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, ""

        def rows(section: str) -> list[list[str]]:
            return Page(get("")[1]).rows.get(section, [])[1:]

        standing.site("bonn")
        standing.site("ulm", "rounds: 1\n")
        until(
            lambda: [row[:2] for row in rows("Sites")] == [["bonn", "free"], ["ulm", "free"]],
            server_says(server),
        )
        with standing.operator() as operator:
            job = operator.submit(experiment(clients=1, rounds=2))
            standing.over(operator, job)
            waits = operator.submit(experiment(name="waits", clients=2, rounds=2))
            until(
                lambda: any("ulm refused" in row[-1] for row in rows("Queue")), server_says(server)
            )
            assert rows("Queue")[0][:2] == [waits, "waits"]
            (row,) = rows("Jobs")
            assert row[:5] == [job, "one", "operator", "done", "bonn"]
            assert [one[1:3] for one in rows("Events")][-1] == ["operator", "submit"]
            (still, link) = Page(get("")[1]).links
            assert (still, "refresh" in get("")[1], "refresh" in get(still)[1]) == (
                "?still",
                True,
                False,
            )
            assert link == f"jobs/{job}/report.html"
            (report,) = (tmp_path / "fed" / "jobs" / job / "runs").glob("*/report.html")
            report.write_text("the report")
            assert get(link) == (200, "the report")
        basic = base64.b64encode(f"anna:{TOKEN}".encode()).decode()
        assert get("", f"Basic {basic}")[0] == 200
        for wrong in ("", "Bearer x", "Basic x", f"Basic {base64.b64encode(b'x:y').decode()}"):
            assert {get(path, wrong)[0] for path in ("", link, "else")} == {401}
        assert get(f"jobs/{waits}/report.html")[0] == 404


def server_says(server: Any) -> Any:
    return lambda: server.output


def asked(folder: Path, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """What the page of a folder answers to a request without a token."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": headers.pop("method", "GET"),
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "query_string": b"",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
    }

    received = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in received:
            return message
        return await asyncio.Future()  # the client stays

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application(folder, None)(scope, receive, send))  # type: ignore[arg-type]
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(one.get("body", b"") for one in sent[1:])
    return sent[0]["status"], found, body.decode()


def told(folder: Path, text: str = "x", **changed: Any) -> dict[str, Any]:
    """What a server published, with one text wherever a site or an operator gives it."""
    site = vars(Site("bonn", text, text, (text,), 1.0))
    jobs = [Job("000001", text, "", text, "2026-01-31T09:30:00+00:00", (), "failed", text)]
    jobs.append(
        Job("000002", text, "", text, "2026-01-31T09:30:00+00:00", (), replies={"ulm": text})
    )
    event = {"time": jobs[0].submitted, "who": text, "what": text, "reason": text}
    found = {
        "address": "127.0.0.1:7070",
        "stopped": text,
        "sites": [{**site, "state": "free"}],
        "jobs": [vars(one) for one in jobs],
        "queued": 1,
        "all": 2,
        "events": [event],
        "at_s": 1.0,
        **changed,
    }
    (folder / NAME).write_text(json.dumps(found))
    return found


def test_each_text_is_escaped(tmp_path: Path) -> None:
    text = "<script>alert('1')</script><img src=x onerror=y>\"'&"
    page = Page(page_of(told(tmp_path, text), ["000001"], 2.0))
    assert page.forbidden == []
    assert page.links == ["?still", "jobs/000001/report.html"]
    assert "".join(page.words).count(text) >= 12


def test_many_sites_are_counted(tmp_path: Path) -> None:
    names = [f"site-{number}" for number in range(200)]
    replies = dict.fromkeys(names, "refused: rounds") | {"bonn": "accepted"}
    jobs = [
        vars(Job("000001", "x", "", "anna", "", (), "done", sites=tuple(names), replies=replies))
    ]
    (_, row) = Page(page_of(told(tmp_path, jobs=jobs), [], 1.0)).rows["Jobs"]
    assert "200 sites" in row
    assert "200 sites refused: rounds; bonn accepted" in row


def test_the_page_says_when_the_server_is_silent_or_its_queue_waits(tmp_path: Path) -> None:
    said = "has told nothing"
    assert said not in page_of(told(tmp_path), [], 1.0 + LATE_S)
    assert said in page_of(told(tmp_path), [], 2.0 + LATE_S)
    assert "disk is full; the queue waits" in page_of(
        told(tmp_path, stopped="disk is full"), [], 1.0
    )
    assert "the queue waits" not in page_of(told(tmp_path, stopped=""), [], 1.0)


def test_without_a_token_the_page_is_for_local_names_alone(tmp_path: Path) -> None:
    assert asked(tmp_path, "/")[0] == 503
    told(tmp_path)
    for host, status in (("localhost:80", 200), ("127.0.0.1", 200), ("evil.example", 403)):
        found, headers, body = asked(tmp_path, "/", host=host)
        assert found == status
        assert ("bonn" in body) == (status == 200)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "script" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert asked(tmp_path, "/", method="POST")[0] == 405
    other = tmp_path / "runs" / "other" / "report.html"  # of no job
    other.parent.mkdir(parents=True)
    other.touch()
    job = tmp_path / "jobs" / "000001" / "runs" / "trial"
    job.mkdir(parents=True)
    (job / "report.html").write_text(document("a report", "", script=script()))
    _, headers, body = asked(tmp_path, "/jobs/000001/report.html")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', body)
    assert "script-src 'sha256-" in policy
    assert headers["content-security-policy"].startswith(f"{policy}; ")
    for path in (f"/{NAME}", "/jobs/../report.html", f"/jobs/{'9' * 5000}/report.html"):
        assert asked(tmp_path, path)[0] == 404


@pytest.mark.parametrize(
    ("address", "token", "word"),
    [
        ("0.0.0.0:8080", None, "--page-token-file"),
        ("127.0.0.1", None, "HOST:PORT"),
        ("127.0.0.1:0", "short", "16"),
    ],
)
def test_a_page_that_others_can_reach_needs_a_token(
    tmp_path: Path, address: str, token: str | None, word: str
) -> None:
    file = None if token is None else tmp_path / "token"
    if file is not None:
        file.write_text(token or "")
    with pytest.raises((FedmxError, AddressError), match=word):
        PageProcess(tmp_path, address, file, tmp_path, tmp_path)


def test_a_missing_package_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_process, "find_spec", lambda name: None)
    with pytest.raises(FedmxError, match=re.escape(install("page"))):
        PageProcess(tmp_path, "127.0.0.1:0", None, tmp_path, tmp_path)


def test_the_server_writes_what_changed_and_outlives_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s, ended = [100.0], []
    monkeypatch.setattr(page_process.time, "monotonic", lambda: now_s[0])
    page = PageProcess(tmp_path, "127.0.0.1:0", None, tmp_path, tmp_path)
    page._process = SimpleNamespace(poll=lambda: ended[0] if ended else None)  # type: ignore[assignment]
    federation: Any = SimpleNamespace(
        ledger=Ledger(tmp_path),
        listener=SimpleNamespace(address="127.0.0.1:7070"),
        sites={"bonn": Site("bonn")},
        active={},
        stopped="",
    )

    def written() -> bool:
        found = (tmp_path / NAME).exists()
        (tmp_path / NAME).unlink(missing_ok=True)
        return found

    def published(after_s: float) -> bool:
        now_s[0] += after_s
        page.publish(federation)
        return written()

    assert published(0.0)
    assert not published(page_process.LEAST_S)
    federation.ledger.add("anna", "submit", job="000001", name="x", digest="", asked=[])
    assert not published(page_process.LEAST_S / 2)
    assert published(page_process.LEAST_S / 2)
    assert published(page_process.MOST_S)
    ended.append(1)
    (tmp_path / page_process.LOG).write_text("no room\n")
    assert not published(page_process.MOST_S)
    assert not published(page_process.MOST_S)
    assert [record.getMessage() for record in caplog.records] == ["the page has ended: no room"]
