"""What an operator sees of a real server: its status, its metrics, and what is left afterwards."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from fedmx import Experiment, RunFolder
from fedmx.cli.runs import status_lines
from fedmx.deployment.token import read_token
from fedmx.errors import FedmxError
from fedmx.monitoring import endpoint as endpoint_module
from fedmx.monitoring.endpoint import MetricsEndpoint, pages_of
from fedmx.monitoring.monitor import ClientsNow, LiveFile, Monitor
from fedmx.monitoring.reading import status_of_address, status_of_run
from fedmx.server.server import Server
from fedmx.version import __version__
from layers.extras import install
from tests.fedmx.command_line import fedmx
from tests.fedmx.processes import Deployment, until
from tests.fedmx.scripted import Scripted, fleet, honest, listening, update_of
from tests.network.conftest import Certificates
from tests.network.test_expiry import ending

EXPERIMENT = """
name: watched
rounds: 2
clients: 2
compute:
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {epochs: 1, batch_size: 100}
network:
  metrics: 127.0.0.1:0
"""


TOKEN = "a token of more than 16 bytes"


def watched(certificates: Certificates, **settings: Any) -> tuple[Server, MetricsEndpoint]:
    server = listening(certificates, **settings)
    server.monitor = monitor = Monitor("a-run", "digits", server.last_round, server.network.now)
    server.metrics = endpoint = MetricsEndpoint("127.0.0.1:0", pages_of(monitor))
    return server, endpoint


def get(
    address: str, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Ask for a page; return the answer and its content."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=20)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()


def samples(address: str) -> dict[tuple[str, str], float]:
    """The metrics as Prometheus reads them: by their names and their one label's value."""
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(get(address, "/metrics")[1].decode())
        for sample in family.samples
    }


def test_the_status_says_who_is_there_and_who_is_waited_for(certificates: Certificates) -> None:
    server, endpoint = watched(certificates, wait_for=3)
    go_on, left = threading.Event(), threading.Event()

    def slow(client: Scripted) -> None:
        client.task()
        left.wait(60)
        client.hang_up()
        go_on.wait(60)
        client.connect()
        client.be_ready()
        client.say(update_of(client.task()))
        honest(client)

    with server:
        before = status_of_address(endpoint.address)
        assert (before["ready"], before["round"], before["state"]) == ([], None, "running")
        rounds: list[Any] = []
        running = threading.Thread(target=lambda: rounds.extend(server.rounds()))
        with fleet(server, certificates, {0: honest, 1: honest, 2: slow}):
            running.start()

            def status_when(**wanted: object) -> dict[str, Any]:
                def look() -> dict[str, Any] | None:
                    status = status_of_address(endpoint.address)
                    waiting = status["waiting"] or {"for": None, "clients": []}
                    status |= {"for": waiting["for"], "waited_for": waiting["clients"]}
                    fits = all(status[key] == value for key, value in wanted.items())
                    return status if fits else None

                return until(look, lambda: json.dumps(status_of_address(endpoint.address)))

            status = status_when(**{"for": "updates", "waited_for": [2], "ready": [0, 1, 2]})
            assert (status["round"], status["rounds_done"]) == (1, 0)
            assert status["waiting"]["since"] <= status["time"]
            assert samples(endpoint.address)["fedmx_clients_waited_for", ""] == 1
            left.set()
            status = status_when(ready=[0, 1])
            assert list(status["away"]) == ["2"]
            assert status["away"]["2"] <= status["time"]
            go_on.set()
            status = status_when(rounds_done=1, waiting=None, round=None, state="done")
            assert status["updates"] == {"accepted": 3, "rejected": 0, "declined": 0, "lost": 0}
            assert status["reconnections"] == 1
            assert status["received_bytes"] > 3 * 15 * 4
            assert status["memory_bytes"] > 1 << 20
            running.join(60)
    with pytest.raises(FedmxError, match="nobody answers"):
        status_of_address(endpoint.address)


def test_prometheus_reads_the_metrics_of_a_running_server(certificates: Certificates) -> None:
    server, endpoint = watched(certificates, last=2, wait_for=3)

    def wrong_once(client: Scripted) -> None:
        client.say(update_of(client.task(), samples=-5))
        honest(client)

    with server, fleet(server, certificates, {0: honest, 1: honest, 2: wrong_once}):
        rounds = server.rounds()
        first = next(rounds)
        sessions = server.network._sessions  # type: ignore[attr-defined]
        with socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2]))) as no:
            no.sendall(b"GET / HTTP/1.0\r\n\r\n")
        until(lambda: sessions.poll() or sessions.refused_connections, lambda: "nobody was refused")
        second = next(rounds)
        found = samples(endpoint.address)
        assert found["fedmx_round", ""] == found["fedmx_rounds", ""] == 2
        assert found["fedmx_clients_ready", ""] == 3
        assert found["fedmx_updates_total", "accepted"] == 5
        assert found["fedmx_updates_total", "rejected"] == 1
        assert found["fedmx_refused_connections_total", ""] >= 1
        assert found["fedmx_reconnections_total", ""] == 0
        assert found["fedmx_accuracy_ratio", ""] == second.accuracy
        assert found["fedmx_loss", ""] == pytest.approx(second.loss)
        listener = server.network.listener  # type: ignore[attr-defined]
        traffic = listener.traffic()
        assert 0 < found["fedmx_received_bytes_total", ""] <= traffic.received_bytes
        assert 0 < found["fedmx_sent_bytes_total", ""] <= traffic.sent_bytes
        spent_s = first.seconds + second.seconds
        assert found["fedmx_round_duration_seconds_sum", ""] == pytest.approx(spent_s)
        assert found["process_resident_memory_bytes", ""] > 1 << 20
        kind = "application/openmetrics-text"
        answer, text = get(endpoint.address, "/metrics", Accept=kind)
        assert answer.headers["Content-Type"].startswith(kind)
        names = {family.name for family in openmetrics_families(text.decode())}
        assert {"fedmx", "fedmx_round", "fedmx_updates", "fedmx_round_duration_seconds"} <= names


# --- all that is told of a run that is made up -----------------------------------------------


def made_up() -> Monitor:
    """The monitor of a server in its round 23, which went on after round 20."""
    certificate = {"what": "certificate", "path": "a.pem", "warning": None}
    expires = {"expires": "2026-02-01T00:00:00+00:00"}
    now = ClientsNow(
        "fl.example.org:9100",
        number=5,
        ready=(0, 2, 4),
        away={1: 1769851800.0},
        waiting_for="updates",
        waited_for=(2, 4),
        since=1769851830.5,
        received_bytes=5000,
        sent_bytes=7000,
        refused_connections=6,
        reconnections=8,
        certificates=({**certificate, **expires}, {"what": "ca", **expires}),
        paused=True,
        excluded=(3,),
    )
    monitor = Monitor("a-hash", "digits", 30, lambda: now)
    monitor.started = 1769850000.0
    monitor.goes_on_after(20)
    monitor.begun(21)
    for round, seconds, accuracy in ((21, 2.0, 0.75), (22, 3.0, None)):
        monitor.concluded(concluded(round, seconds, accuracy), "")
        monitor.begun(round + 1)
    return monitor


ACCURACY = {"key": "accuracy", "label": "Accuracy", "unit": "share", "better": "higher"}


def concluded(round: int, seconds: float, accuracy: float | None, **more: Any) -> dict[str, Any]:
    return {
        "round": round,
        "seconds": seconds,
        "participants": [4, 0],
        "updates": 3,
        "rejected": 1,
        "declined": 20,
        "lost": 300,
        "accuracy": accuracy,
        "loss": accuracy and 0.5,
        "epsilon": 0.25 * round,
        "suspended": {"3": 2.5},
        **more,
    }


def status_but_now(monitor: Monitor) -> dict[str, Any]:
    """A status without what differs from machine to machine and from call to call."""
    status = monitor.status()
    assert status.pop("pid") == os.getpid()
    assert status.pop("memory_bytes") > 1 << 20
    assert status.pop("time").endswith("+00:00")
    return status


def test_a_status_has_all_that_is_known_of_the_clients_and_the_rounds() -> None:
    monitor = made_up()
    status = status_but_now(monitor)
    assert (
        json.loads(json.dumps(status))
        == status
        == {
            "format": 1,
            "run": "a-hash",
            "state": "running",
            "reason": "",
            "paused": True,
            "excluded": [3],
            "round": 23,
            "rounds_done": 22,
            "rounds": 30,
            "metrics": [ACCURACY],
            "accuracy": 0.75,
            "loss": 0.5,
            "epsilon": 5.5,
            "clients": 5,
            "ready": [0, 2, 4],
            "suspended": {"3": 2.5},
            "away": {"1": "2026-01-31T09:30:00.000+00:00"},
            "waiting": {
                "for": "updates",
                "clients": [2, 4],
                "since": "2026-01-31T09:30:30.500+00:00",
            },
            "updates": {"accepted": 4, "rejected": 2, "declined": 40, "lost": 600},
            "awaits": "",
            "in_flight": None,
            "staleness": None,
            "updates_per_s": None,
            "received_bytes": 5000,
            "sent_bytes": 7000,
            "refused_connections": 6,
            "reconnections": 8,
            "certificates": [
                {
                    "what": "certificate",
                    "path": "a.pem",
                    "warning": None,
                    "expires": "2026-02-01T00:00:00+00:00",
                },
                {"what": "ca", "expires": "2026-02-01T00:00:00+00:00"},
            ],
            "address": "fl.example.org:9100",
            "started": "2026-01-31T09:00:00.000+00:00",
        }
    )
    more = {"in_flight": 4, "staleness": [0, 1, 5], "suspended": {}}
    monitor.concluded(concluded(23, 1.0, 0.8, loss=0.4, **more), "an operator ended it")
    assert status_but_now(monitor) == {
        **status,
        "state": "done",
        "reason": "an operator ended it",
        "round": None,
        "rounds_done": 23,
        "accuracy": 0.8,
        "loss": 0.4,
        "epsilon": 5.75,
        "suspended": {},
        "waiting": None,
        "updates": {"accepted": 6, "rejected": 3, "declined": 60, "lost": 900},
        "in_flight": 4,
        "staleness": 2.0,
        "updates_per_s": 1.5,
    }


def test_a_status_before_the_first_client_has_no_numbers() -> None:
    status = status_but_now(Monitor("a-hash", "digits", 3, lambda: ClientsNow("here:1")))
    del status["started"]
    nothing = {name for name, value in status.items() if value in (None, [], {}, 0)}
    said = {name: value for name, value in status.items() if name not in nothing}
    assert said == {
        "format": 1,
        "run": "a-hash",
        "state": "running",
        "reason": "",
        "awaits": "",
        "rounds": 3,
        "metrics": [ACCURACY],
        "updates": dict.fromkeys(("accepted", "rejected", "declined", "lost"), 0),
        "address": "here:1",
    }


def metrics_of(monitor: Monitor) -> list[str]:
    """The metrics of a run, a line for each kind and for each value."""
    found = pages_of(monitor)["/metrics"]("")
    lines = []
    for family in text_string_to_metric_families(found[1].decode()):
        if family.name.startswith("fedmx"):
            lines.append(f"{family.name}, {family.type}: {family.documentation}")
            for one in family.samples:
                labels = "".join(f" {key}={value}" for key, value in one.labels.items())
                lines.append(f"  {one.name}{labels} {one.value:.12g}")
    return lines


def test_the_metrics_have_all_that_is_known_of_a_run() -> None:
    monitor = made_up()
    expected = Path(__file__).with_name("metrics.txt").read_text("utf-8")
    assert metrics_of(monitor) == expected.replace("VERSION", __version__).splitlines()
    record = concluded(23, 1.5, None, in_flight=4, staleness=[0, 1, 5])
    monitor.concluded(record, "an operator ended it")
    found = metrics_of(monitor)
    assert {"  fedmx_round 23", "  fedmx_clients_waited_for 0"} <= {*found}
    (at,) = (place for place, line in enumerate(found) if line.startswith("  fedmx_epsilon"))
    flight, number, staleness, mean = found[at + 1 :][:4]
    assert (number, mean) == ("  fedmx_tasks_in_flight 4", "  fedmx_staleness 2")
    assert flight.startswith("fedmx_tasks_in_flight, gauge: ")
    assert staleness.startswith("fedmx_staleness, gauge: ")


def test_the_speed_is_that_of_the_last_twenty_rounds() -> None:
    monitor = Monitor("a-hash", "digits", 30, lambda: ClientsNow("here:1"))
    for round in range(1, 26):
        record = concluded(round, 2.0 if round > 5 else 100.0, None, in_flight=1, staleness=[])
        monitor.concluded(record, "")
    status = monitor.status()
    assert (status["updates_per_s"], status["staleness"], status["in_flight"]) == (1.5, None, 1)
    still = Monitor("a-hash", "digits", 30, lambda: ClientsNow("here:1"))
    still.concluded(concluded(1, 0.0, None, in_flight=1, staleness=[3]), "")
    assert still.status()["updates_per_s"] is None


def of_run(parent: Path, mode: str, live: object = None, **facts: Any) -> RunFolder:
    """A run with two rounds that are made up, and what its server has written last."""
    text = Experiment(rounds=9, clients=4, compute={"model": "2nn", "data": "digits"}).to_yaml()
    run = RunFolder.create(parent, "a", text, {"mode": mode, "started": "yesterday", **facts})
    for round, accuracy in ((1, 0.75), (2, None)):
        bytes_sent = {"up_bytes": 100 * round, "down_bytes": 3000 * round}
        run.append_round(concluded(round, 2.0, accuracy, **bytes_sent))
    if live is not None:
        run.live_path.write_text(live if isinstance(live, str) else json.dumps(live))
    return run


def test_the_status_of_a_run_comes_from_its_records_and_the_connections_from_its_server(
    tmp_path: Path,
) -> None:
    run = of_run(tmp_path, "simulation", {"format": 1, "round": 7})
    unknown = ("time", "round", "clients", "waiting", "refused_connections", "reconnections")
    unknown += ("address", "in_flight", "staleness", "updates_per_s", "memory_bytes", "pid")
    records = {
        **dict.fromkeys(unknown),
        **{"format": 1, "ready": [], "away": {}, "certificates": [], "paused": False},
        **{"awaits": ""},
        **{"excluded": [], "started": "yesterday", "run": str(run.path), "state": "interrupted"},
        **{"reason": "its process ended before the run did", "rounds_done": 2, "rounds": 9},
        **{"accuracy": 0.75, "loss": 0.5, "epsilon": 0.5, "received_bytes": 300},
        **{"suspended": {"3": 2.5}, "metrics": [ACCURACY]},
        "sent_bytes": 9000,
        "updates": {"accepted": 4, "rejected": 2, "declined": 40, "lost": 600},
    }
    assert status_of_run(run.path) == records
    with run.lock():
        status = status_of_run(run.path)
        assert status.pop("memory_bytes") > 1 << 20
        assert status == {
            **{name: value for name, value in records.items() if name != "memory_bytes"},
            **{"state": "running", "reason": "", "pid": os.getpid()},
        }

    live = {**made_up().status(), "started": "today"}
    run = of_run(tmp_path, "server", live, address="fl.example.org:9100")
    of_server = {
        **{**records, **live},
        **{name: records[name] for name in ("state", "reason", "rounds_done", "rounds")},
        **{name: records[name] for name in ("accuracy", "loss", "epsilon", "updates", "pid")},
        **{name: records[name] for name in ("in_flight", "staleness", "updates_per_s")},
        **{"run": str(run.path), "memory_bytes": None},
    }
    assert status_of_run(run.path) == of_server
    run.finish("done", "all 9 rounds were run")
    done = {
        **records,
        **{"run": str(run.path), "address": "fl.example.org:9100"},
        **{"state": "done", "reason": "all 9 rounds were run"},
    }
    assert status_of_run(run.path) == done
    with run.lock():  # as for a moment after its end
        assert status_of_run(run.path) == done


@pytest.mark.parametrize(
    "live", [None, "{", "[1]", {"format": 2, "paused": True}, {"paused": True}], ids=str
)
def test_a_server_that_has_written_no_status_yet_has_that_of_its_records(
    live: object, tmp_path: Path
) -> None:
    status = status_of_run(of_run(tmp_path, "server", live).path)
    assert (status["paused"], status["received_bytes"]) == (False, 300)


def test_the_status_of_a_run_without_rounds_has_no_numbers(tmp_path: Path) -> None:
    text = Experiment(rounds=9, clients=4, compute={"model": "2nn", "data": "digits"}).to_yaml()
    status = status_of_run(RunFolder.create(tmp_path, "a", text, {}).path)
    assert [status[name] for name in ("rounds_done", "received_bytes", "sent_bytes")] == [0, 0, 0]
    assert [status[name] for name in ("accuracy", "loss", "epsilon")] == [None] * 3
    assert set(status["updates"].values()) == {0}


@pytest.mark.parametrize(
    "answer", [None, b"no JSON", b"[1]", b"{}", b'{"format": 2}', b"\xff"], ids=str
)
def test_what_is_no_status_of_a_server_is_refused(answer: bytes | None) -> None:
    page = None if answer is None else ("application/json", answer)
    with (
        MetricsEndpoint("127.0.0.1:0", {"/status": lambda accept: page}) as end,
        pytest.raises(FedmxError, match=rf"{end.address}: .*network\.metrics"),
    ):
        status_of_address(end.address)


def test_a_status_that_needs_a_token_says_so() -> None:
    pages = pages_of(made_up())
    with MetricsEndpoint("127.0.0.1:0", pages, TOKEN.encode()) as end:
        for token in (None, b"another", TOKEN.encode()[:-1]):
            with pytest.raises(FedmxError, match=r"wants its token; give --token-file$"):
                status_of_address(end.address, token)
        assert status_of_address(end.address, TOKEN.encode())["run"] == "a-hash"


def test_a_server_is_healthy_while_it_serves_and_ready_while_its_run_goes_on() -> None:
    monitor = Monitor("a-run", "digits", 3, lambda: ClientsNow(2))
    with MetricsEndpoint("127.0.0.1:0", pages_of(monitor)) as end:

        def codes() -> list[int]:
            return [get(end.address, path)[0].status for path in ("/healthz", "/readyz")]

        assert codes() == [200, 200]
        assert b'name="digits"' in get(end.address, "/metrics")[1]
        monitor.concluded(concluded(3, 1.0, None), "all 3 rounds were run")
        assert codes() == [200, 503]


@contextlib.contextmanager
def serving() -> Iterator[str]:
    with MetricsEndpoint("127.0.0.1:0", {"/status": lambda accept: ("text/plain", b"x")}) as end:
        yield end.address


@pytest.mark.parametrize(
    ("path", "host", "code"),
    [
        ("/status", "127.0.0.1:9109", 200),
        ("/status?x=1", "localhost", 200),
        ("/status", "[::1]:9109", 200),
        ("/status", "LocalHost:9109", 200),
        ("/status", "127.1.2.3", 200),
        ("/status", "localhost.example.org", 403),
        ("/status", "[2001:db8::1]:9109", 403),
        ("/status", "localhost:port", 403),
        ("/status", "evil.example.org", 403),
        ("/status", "10.0.0.5:9109", 403),
        ("/", "localhost", 404),
        ("/../etc/passwd", "localhost", 404),
    ],
)
def test_only_known_pages_are_read_and_only_by_names_of_this_machine(
    path: str, host: str, code: int
) -> None:
    with serving() as address:
        assert get(address, path, Host=host)[0].status == code


def test_an_answer_has_its_type_its_length_and_its_content_or_says_why_there_is_none() -> None:
    pages = {
        "/there": lambda accept: (f"text/{accept}", "größe".encode()),
        "/not": lambda accept: None,
    }

    def answer(path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any, bytes]:
        found, content = get(end.address, path, method, **headers)
        kind, length = found.headers["Content-Type"], found.headers["Content-Length"]
        assert found.headers["Server"].startswith("fedmx")
        if found.status == 200:
            return found.status, kind, length, content
        return found.status, found.reason, None, b""

    with MetricsEndpoint("127.0.0.1:0", pages) as end:
        assert answer("/there?a=1", Accept="x") == (200, "text/x", "7", "größe".encode())
        assert answer("/there") == (200, "text/", "7", "größe".encode())
        assert answer("/there", "HEAD", Accept="x") == (200, "text/x", "7", b"")
        assert answer("/not") == (503, "not ready", None, b"")
        assert answer("/other") == (404, "there are: /there, /not", None, b"")
        assert answer("/there", "POST")[0] == 501
        assert answer("/there", Host="example.org") == (403, "use a local host name", None, b"")
    with MetricsEndpoint("127.0.0.1:0", pages, TOKEN.encode()) as end:
        refused = (401, "send the token of network.metrics_token_file", None, b"")
        assert answer("/there") == answer("/there", Authorization="Bearer ü") == refused


def test_a_silent_or_slow_reader_delays_others_and_does_not_stop_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_module, "PATIENCE_S", 0.1)
    with serving() as address, contextlib.ExitStack() as stack:
        host, port = address.split(":")
        for number in range(10):
            silent = stack.enter_context(socket.create_connection((host, int(port))))
            if number % 2:
                silent.sendall(b"GET /sta")
        assert get(address, "/status")[1] == b"x"


def test_a_port_in_use_is_said_before_anything_runs(certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server, _ = watched(certificates)
        server.metrics = MetricsEndpoint(address, {})
        with pytest.raises(FedmxError, match=r"network\.metrics: .*Address already in use"), server:
            pass
        assert server.network.listener._thread is None  # type: ignore[attr-defined]


def test_a_status_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LiveFile(tmp_path / "gone" / "live.json", lambda: {"format": 1}):
        pass
    (record,) = [one for one in caplog.records if "cannot write the status" in one.getMessage()]
    assert record.levelname == "WARNING"
    with LiveFile(tmp_path / "live.json", lambda: {"format": 1}):
        pass
    assert json.loads((tmp_path / "live.json").read_text()) == {"format": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["live.json"]


@pytest.mark.timeout(300)
def test_the_command_tells_the_status_by_run_and_by_address_while_it_runs_and_afterwards(
    tmp_path: Path, certificates: Certificates
) -> None:
    (tmp_path / "watched.yaml").write_text(EXPERIMENT)
    with Deployment(tmp_path, tmp_path / "watched.yaml", certificates) as deployment:
        server = deployment.serve()
        metrics = server.line("metrics at http://").split("http://")[1].split("/")[0]
        server.line("run folder: ")
        run = str(deployment.run.path)
        server.line("waiting for clients: 0 of 2 are ready")
        live = deployment.run.path / "live.json"
        until(
            lambda: live.exists() and json.loads(live.read_text())["waiting"], lambda: server.output
        )
        for text in [fedmx("status", where, cwd=tmp_path) for where in (run, metrics)]:
            assert (text.code, text.err) == (0, "")
            assert "0 of 2 are ready" in text.out
            assert "for clients 0, 1, since " in text.out
        found = json.loads(fedmx("status", run, "--json", cwd=tmp_path).out)
        assert (found["state"], found["pid"]) == ("running", server.pid)
        assert found["waiting"]["clients"] == [0, 1]
        assert found["memory_bytes"] > 1 << 20
        os.kill(server.pid, signal.SIGHUP)  # `systemctl reload`: it looks at its certificates
        clients = [deployment.client(number, 2) for number in range(2)]
        assert [one.code() for one in (*clients, server)] == [0, 0, 0]
        done = json.loads(fedmx("status", run, "--json", cwd=tmp_path).out)
        assert (done["state"], done["rounds_done"], done["rounds"]) == ("done", 2, 2)
        assert done["updates"] == {"accepted": 4, "rejected": 0, "declined": 0, "lost": 0}
        assert (done["waiting"], done["pid"], done["ready"]) == (None, None, [])
        records = deployment.run.rounds()
        assert done["received_bytes"] == sum(record["up_bytes"] for record in records)
        assert done["accuracy"] == records[-1]["accuracy"]
        assert "nobody answers" in fedmx("status", metrics, cwd=tmp_path).error_text


def test_the_status_of_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    assert "there is no such folder" in fedmx("status", "none", cwd=tmp_path).error_text
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.listen()

        def answer() -> None:
            connection, _ = deaf.accept()
            connection.sendall(b"fedmx\x00\x01 no http\r\n\r\n")
            connection.close()

        answering = threading.Thread(target=answer)
        answering.start()
        text = fedmx("status", f"127.0.0.1:{deaf.getsockname()[1]}", cwd=tmp_path).error_text
        assert "network.metrics" in text
        answering.join()


def test_metrics_are_for_this_machine_alone_or_need_a_token(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{TOKEN}\n")
    monitor = Monitor("a-run", "digits", 3, lambda: ClientsNow(2))
    with MetricsEndpoint("0.0.0.0:0", pages_of(monitor), read_token(secret)) as end:
        where = f"127.0.0.1:{end.address.rpartition(':')[2]}"

        def code(path: str, **headers: str) -> int:
            return get(where, path, **headers)[0].status

        for path in ("/metrics", "/status", "/other"):
            assert code(path) == code(path, Authorization="Bearer other") == 401
            assert code(path, Authorization=f"Basic {TOKEN}") == 401
        assert code("/metrics", Authorization=f"Bearer {TOKEN}", Host="fl.example.org") == 200
        # A container's health check has no secret.
        assert code("/healthz") == code("/readyz", Host="fl.example.org") == 200
        told = fedmx("status", where, "--token-file", secret, "--json", cwd=tmp_path)
        assert json.loads(told.out)["run"] == "a-run"
        assert "--token-file" in fedmx("status", where, cwd=tmp_path).error_text


def test_metrics_need_their_package_and_elsewhere_a_token(tmp_path: Path) -> None:
    (tmp_path / "watched.yaml").write_text(EXPERIMENT)
    for address in ("0.0.0.0:9109", "10.0.0.5:9109", "example.org:9109"):
        words = ["server", "watched.yaml", "--set", f"network.metrics={address}"]
        assert "metrics_token_file" in fedmx(*words, cwd=tmp_path).error_text
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from importlib import util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'prometheus_client' "
        "else find(name, *more)\n"
        "from fedmx.cli.start import main\nmain(sys.argv[1:])\n"
    )
    text = fedmx("server", "watched.yaml", cwd=tmp_path, code=code).error_text
    assert install("metrics") in text


def test_the_status_the_metrics_and_the_log_warn_of_certificates_that_end_soon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "fedmx.server")
    soon = ending(tmp_path / "pki", in_days=10)
    server, endpoint = watched(soon)
    with server:
        status = status_of_address(endpoint.address)
        told = [text for label, text in status_lines(status, 0.0) if label == "certificate"]
        assert [Path(one["path"]).name for one in status["certificates"]] == [
            "server.pem",
            "ca.pem",
            "crl.pem",
        ]
        assert len(told) == 3
        assert "server.pem expires in 9 days" in told[0]
        at = samples(endpoint.address)["fedmx_certificate_expiry_timestamp_seconds", "certificate"]
        (own, *_) = soon.server.ends()
        assert at == own.at.timestamp()
        until(
            lambda: server.network._sessions.poll() or len(caplog.records) >= 3,  # type: ignore[attr-defined]
            lambda: caplog.text,
        )
        assert told == [record.message for record in caplog.records]


def test_a_certificate_that_ends_later_is_in_the_status_without_a_warning(
    certificates: Certificates,
) -> None:
    server, endpoint = watched(certificates)
    with server:
        status = status_of_address(endpoint.address)
        assert [one["warning"] for one in status["certificates"]] == [None, None]
        assert "certificate" not in dict(status_lines(status, 0.0))
