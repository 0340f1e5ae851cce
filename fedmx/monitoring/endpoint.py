"""A small HTTP server on loopback that answers GET with a few pages."""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fedmx.errors import FedmxError

log = logging.getLogger("fedmx.server")
PATIENCE_S = 2.0  # for a whole request

Page = Callable[[str], tuple[str, bytes]]
"""Takes what the reader accepts (HTTP's Accept); returns the content's type and the content."""


class MetricsEndpoint:
    """Serves pages at HOST:PORT inside a with statement.

    One request at a time, each within `PATIENCE_S`: whoever on this machine opens connections and
    is silent delays other readers, and costs the server one descriptor and no more.

    Args:
        address: a loopback address; port 0 lets the system choose.
        pages: each path with what makes its page.
    """

    def __init__(self, address: str, pages: Mapping[str, Page]) -> None:
        self._wanted = address
        self._pages = pages
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Where it listens, with the real port inside the with statement."""
        if self._server is None:
            return self._wanted
        return f"{self._wanted.rpartition(':')[0]}:{self._server.server_address[1]}"

    def __enter__(self) -> MetricsEndpoint:
        host, _, port = self._wanted.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), self._pages)
        except OSError as error:
            raise FedmxError(
                f"network.metrics: {self._wanted}: cannot listen ({error.strerror}); choose "
                "another port"
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="fedmx-metrics", daemon=True
        )
        self._thread.start()
        log.info("metrics at http://%s/metrics", self.address)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = self._thread = None


class _Server(http.server.HTTPServer):
    """Ends each request after `PATIENCE_S`, however slowly its bytes come."""

    def __init__(self, where: tuple[str, int], pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self.address_family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        super().__init__(where, _Request)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks DNS for a name

    def finish_request(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(PATIENCE_S, _hang_up, [request])
        end.start()
        try:
            super().finish_request(request, client_address)
        finally:
            end.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a reader of metrics has gone", exc_info=True)


class _Request(http.server.BaseHTTPRequestHandler):
    server_version = "fedmx"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if not _is_this_machine(self.headers.get("Host")):
            # A web page whose name was pointed at 127.0.0.1 reads nothing here.
            self.send_error(403, "ask for it by a name of this machine")
        elif page is None:
            self.send_error(404, f"there are: {', '.join(self.server.pages)}")
        else:
            kind, content = page(self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # a scrape is no event of the run


def _is_this_machine(host: str | None) -> bool:
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
