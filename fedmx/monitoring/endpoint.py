"""A small HTTP server that answers GET and HEAD with a few pages."""

from __future__ import annotations

import contextlib
import datetime
import hmac
import http.server
import ipaddress
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedmx.errors import FedmxError
from fedmx.log import Log
from fedmx.monitoring.monitor import BUCKETS_S, Monitor
from fedmx.quantities import lasting
from layers.extras import install

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


log = Log("fedmx.server")
PATIENCE_S = 2.0  # for a whole request
OPEN = frozenset({"/healthz", "/readyz"})  # they show nothing but whether the server works

Page = Callable[[str], "tuple[str, bytes] | None"]
"""Takes the request's Accept header; returns the content type and the content; None: not ready."""


class MetricsEndpoint:
    """Serves pages at HOST:PORT inside a with statement.

    One request at a time, each for at most `PATIENCE_S`: a silent connection delays other readers,
    and costs the server no more than one descriptor.

    Args:
        address: where to listen; port 0 lets the system choose. Others can reach an address that
            is not loopback, and it needs a token.
        pages: the function that renders the page of each path.
        token: what readers must send (`Authorization: Bearer TOKEN`), except for the pages of
            `OPEN`; None: the pages are for everybody on this machine.
    """

    def __init__(self, address: str, pages: Mapping[str, Page], token: bytes | None = None) -> None:
        self._wanted = address
        self._pages = pages
        self._token = token
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address, with the actual port inside the with statement."""
        if self._server is None:
            return self._wanted
        return f"{self._wanted.rpartition(':')[0]}:{self._server.server_address[1]}"

    def __enter__(self) -> MetricsEndpoint:
        host, _, port = self._wanted.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), self._pages, self._token)
        except OSError as error:
            raise FedmxError(
                f"network.metrics: {self._wanted}: cannot listen ({error.strerror}); choose "
                "another port"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="fedmx-metrics", daemon=True
        )
        self._thread.start()
        log.info("metrics_listening", "metrics at http://{address}/metrics", address=self.address)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = self._thread = None


class _Server(http.server.HTTPServer):
    """Ends each request after `PATIENCE_S`, however slow the reader."""

    def __init__(
        self, where: tuple[str, int], pages: Mapping[str, Page], token: bytes | None
    ) -> None:
        self.pages = pages
        self.token = token
        self.address_family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        super().__init__(where, _Request)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's version asks DNS for a name

    def finish_request(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(PATIENCE_S, _hang_up, [request])
        end.start()
        try:
            super().finish_request(request, client_address)
        finally:
            end.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the reader has gone


class _Request(http.server.BaseHTTPRequestHandler):
    server_version = "fedmx"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path, token = self.path.partition("?")[0], self.server.token
        page = self.server.pages.get(path)
        if token is not None and path not in OPEN and not self._has(token):
            self.send_error(401, "send the token of network.metrics_token_file")
        elif token is None and not is_this_machine(self.headers.get("Host")):
            # Block web pages whose host name resolves to 127.0.0.1 (DNS rebinding).
            self.send_error(403, "use a local host name")
        elif page is None:
            self.send_error(404, f"there are: {', '.join(self.server.pages)}")
        elif (found := page(self.headers.get("Accept", ""))) is None:
            self.send_error(503, "not ready")
        else:
            kind, content = found
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def _has(self, token: bytes) -> bool:
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        return hmac.compare_digest(sent.encode("utf-8", "replace"), token)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # requests are not logged


def is_this_machine(host: str | None) -> bool:
    """Return whether a request's header Host names this machine, or is missing."""
    if host is None:
        return True
    name, colon, port = host.rpartition(":")
    bare = (name if colon and port.isdigit() else host).strip("[]").lower()
    if bare == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(bare).is_loopback
    return False


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def check_prometheus() -> None:
    """Check that the Prometheus client library is installed.

    Raises:
        FedmxError: it is not.
    """
    if find_spec("prometheus_client") is None:
        raise FedmxError(
            f"network.metrics needs the package prometheus-client; {install('metrics')}, or leave "
            "the key out"
        )


def pages_of(monitor: Monitor) -> dict[str, Page]:
    """Return the pages of a server by their paths.

    ``/healthz`` answers while the process serves, ``/readyz`` while its run goes on.

    Raises:
        FedmxError: the client library of Prometheus is not installed.
    """

    def ready(accept: str) -> tuple[str, bytes] | None:
        return ("text/plain", b"ready\n") if monitor.status()["state"] == "running" else None

    return {
        "/metrics": _metrics_page(monitor),
        "/status": lambda accept: ("application/json", json.dumps(monitor.status()).encode()),
        "/healthz": lambda accept: ("text/plain", b"ok\n"),
        "/readyz": ready,
    }


def _metrics_page(monitor: Monitor) -> Page:
    """Return a function that renders the metrics in the format that the reader accepts.

    Raises:
        FedmxError: the client library is not installed.
    """
    check_prometheus()
    # Not at the top: only servers with this setting need the library.
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(monitor))
    ProcessCollector(registry=registry)  # process_resident_memory_bytes, process_open_fds, ...

    def page(accept: str) -> tuple[str, bytes]:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)

    return page


class _Collector:
    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        from fedmx.version import __version__

        status, counts = self._monitor.status(), self._monitor.counts()
        info = {"version": __version__, "run": status["run"], "name": self._monitor.name}
        yield InfoMetricFamily("fedmx", "The run, and its version of fedmx.", info)
        round = status["round"] or status["rounds_done"]
        waiting = status["waiting"]
        for name, text, value in (
            ("round", "The round under way, or the last one that was concluded.", round),
            ("rounds", "The number of the last round of the run.", status["rounds"]),
            ("clients_ready", "Clients that are connected and ready.", len(status["ready"])),
            ("clients_away", "Clients that left and may come back.", len(status["away"])),
            (
                "clients_waited_for",
                "Clients that the server waits for now.",
                len(waiting["clients"]) if waiting else 0,
            ),
            *(
                (f"{one.key}{'_ratio' * (one.unit == 'share')}", one.title, status.get(one.key))
                for one in lasting(self._monitor.metrics)
            ),
            ("tasks_in_flight", "Tasks after the last version of the model.", status["in_flight"]),
            ("staleness", "Mean staleness in the last version.", status["staleness"]),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"fedmx_{name}", text, value)
        for name, text, value in (
            ("received_bytes", "Bytes from clients.", status["received_bytes"]),
            ("sent_bytes", "Bytes to clients.", status["sent_bytes"]),
            (
                "refused_connections",
                "Connections that were turned away, or ended for what they sent.",
                status["refused_connections"],
            ),
            ("reconnections", "Times that a client came back.", status["reconnections"]),
        ):
            yield CounterMetricFamily(f"fedmx_{name}", text, value)
        expiry = GaugeMetricFamily(
            "fedmx_certificate_expiry_timestamp_seconds",
            "When a TLS file ends, in seconds since 1970.",
            labels=["what"],
        )
        for one in status["certificates"]:
            at = datetime.datetime.fromisoformat(one["expires"])
            expiry.add_metric([one["what"]], at.timestamp())
        yield expiry
        updates = CounterMetricFamily("fedmx_updates", "Updates by their fate.", labels=["fate"])
        for fate, number in counts.updates.items():
            updates.add_metric([fate], number)
        yield updates
        buckets = [(str(limit), n) for limit, n in zip(BUCKETS_S, counts.buckets, strict=True)]
        yield HistogramMetricFamily(
            "fedmx_round_duration_seconds",
            "Durations of the rounds, evaluation included.",
            buckets=[*buckets, ("+Inf", counts.rounds)],
            sum_value=counts.seconds,
        )
