"""The process that serves a federation's page, and what the federation's server tells it.

The page has a process of its own: whoever reads it, or holds connections to it, costs the
federation nothing. It reads a file that the server writes when something has changed.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import itertools
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmx.deployment.token import read_token
from fedmx.errors import FedmxError
from fedmx.federation.job_process import last_line
from fedmx.federation.orders import SHOWN, states_of_sites
from fedmx.federation.server import Federation
from fedmx.fork_server import ForkedProcess, ForkServer
from fedmx.log import Log
from fedmx.monitoring.endpoint import is_this_machine
from fedmx.run.durable import write_bytes_durably
from layers.extras import install
from layers.network.address import Address, listen

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

log = Log("fedmx.federation")

NAME, LOG = "page.json", "page.log"
LEAST_S = 1.0  # between two writings
MOST_S = 10.0  # as a sign of life
MOST_REQUESTS = 32  # at a time
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass
class PageProcess:
    """The process, between `start` and `close`.

    Args:
        folder: of the federation.
        address: where it listens, HOST:PORT. Others can reach an address that is not loopback: it
            needs a token, and TLS with the federation's certificate.
        token_file: has the secret that readers must send; None: all readers are on this machine.
        certificate, key: of the federation's server.

    Raises:
        FedmxError: a package or the token is missing, or the address cannot be read.
    """

    folder: Path
    address: str
    token_file: Path | None
    certificate: Path
    key: Path
    _process: ForkedProcess | None = field(default=None, init=False)
    _written_s: float = field(default=-MOST_S, init=False)
    _looked_s: float = field(default=-LEAST_S, init=False)
    _content: str = field(default="", init=False)

    def __post_init__(self) -> None:
        missing = [one for one in ("starlette", "uvicorn") if find_spec(one) is None]
        if missing:
            raise FedmxError(f"--page needs the package {missing[0]}; {install('page')}")
        self._address = Address.parse(self.address)
        if not self._address.is_loopback and self.token_file is None:
            raise FedmxError(
                f"--page {self.address}: others can reach this address; give --page-token-file, or "
                "an address of this machine alone, as 127.0.0.1:8080"
            )
        read_token(self.token_file)

    def start(self, processes: ForkServer) -> None:
        """Start the process.

        Raises:
            AddressError: the address is in use, or not of this machine.
        """
        is_local = self._address.is_loopback
        given = {
            "token_file": None if self.token_file is None else str(self.token_file),
            "tls": None if is_local else [str(self.certificate), str(self.key)],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            listen(self._address) as listening,
            (self.folder / LOG).open("wb") as to,
            open(os.devnull, "rb") as nothing,
        ):
            files = nothing.fileno(), to.fileno(), to.fileno()
            words = ["page-server", str(self.folder), str(listening.fileno()), json.dumps(given)]
            self._process = processes.popen("fedmx", words, files, (listening.fileno(),))
            at = Address(self._address.host, listening.getsockname()[1])
        scheme = "http" if is_local else "https"
        log.info("page_listening", "page at {scheme}://{address}/", scheme=scheme, address=at)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def publish(self, federation: Federation) -> None:
        """Write what there is, if it has changed."""
        now_s = time.monotonic()
        if self._process is None or now_s - self._looked_s < LEAST_S:
            return
        self._looked_s = now_s
        code = self._process.poll()
        if code is not None:
            reason = last_line(self.folder / LOG, code)
            log.warning("page_ended", "the page has ended: {reason}", reason=reason)
            self._process = None
            return
        found = published(federation)
        content = json.dumps(found)
        if content != self._content or now_s - self._written_s >= MOST_S:
            told = json.dumps({**found, "at_s": time.time()}).encode()
            with contextlib.suppress(OSError):  # the disk is full: the page says since when
                write_bytes_durably(self.folder / NAME, told, private=True)
                self._content, self._written_s = content, now_s


def published(federation: Federation) -> dict[str, Any]:
    """Return what the page shows, as JSON can hold it."""
    ledger = federation.ledger
    newest = itertools.islice(reversed(ledger.jobs.values()), SHOWN)
    oldest = itertools.islice(ledger.open.values(), SHOWN)  # the next ones of the queue
    jobs = {one.id: vars(one) for one in (*oldest, *newest)}
    running = len(federation.active)
    return {
        "address": federation.listener.address,
        "stopped": federation.stopped,
        "sites": states_of_sites(federation),
        "jobs": list(jobs.values()),
        "queued": len(ledger.open) - running,
        "all": ledger.number,
        "events": list(reversed(ledger.newest)),
    }


def serve(folder: Path, descriptor: int, given: Mapping[str, Any]) -> None:
    """Serve the page until a signal ends the process.

    Args:
        folder: of the federation.
        descriptor: of the socket that listens.
        given: the values that `PageProcess` gives.
    """
    import uvicorn

    token = read_token(Path(given["token_file"])) if given["token_file"] else None
    certificate, key = given["tls"] or (None, None)
    config = uvicorn.Config(
        application(folder, token),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_level="error",  # strangers cause warnings
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_REQUESTS,
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    uvicorn.Server(config).run([socket.socket(fileno=descriptor)])


def application(folder: Path, token: bytes | None) -> Starlette:
    """Return the application that serves the page and the reports of the jobs.

    Args:
        folder: of the federation.
        token: the secret that readers must send; None: readers are on this machine.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse
    from starlette.routing import Route

    from fedmx.federation.page import page_of
    from fedmx.report.html import policy, script

    def only(policy: str) -> dict[str, str]:
        """Return the header that also keeps a page out of frames and forms."""
        more = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        return {"Content-Security-Policy": f"{policy}; {more}"}

    async def overview(request: Request) -> Response:
        try:
            found = json.loads((folder / NAME).read_text(encoding="utf-8"))
        except OSError:
            return PlainTextResponse("not ready\n", 503)
        reports = [one["id"] for one in found["jobs"] if _report_of(folder, one["id"]) is not None]
        still = "still" in request.query_params
        return HTMLResponse(page_of(found, reports, time.time(), still=still))

    async def report(request: Request) -> Response:
        path = _report_of(folder, request.path_params["job"])
        if path is None:
            return PlainTextResponse("no report\n", 404)
        return FileResponse(path, headers=only(policy(script())))

    async def guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response: Response
        if token is None and not is_this_machine(request.headers.get("host")):
            # Block web pages whose host name resolves to 127.0.0.1 (DNS rebinding).
            response = PlainTextResponse("use a local host name\n", 403)
        elif token is not None and not _has(token, request.headers.get("authorization", "")):
            response = PlainTextResponse("send the token of --page-token-file\n", 401)
            response.headers["WWW-Authenticate"] = 'Basic realm="fedmx", charset="UTF-8"'
        else:
            response = await answer(request)
        for name, value in (HEADERS | only(policy())).items():
            response.headers.setdefault(name, value)
        return response

    routes = [Route("/", overview), Route("/jobs/{job}/report.html", report)]
    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)])


def _report_of(folder: Path, job: str) -> Path | None:
    """Return the page of a job's run, which is written while it runs; None: there is none."""
    if re.fullmatch(r"[0-9]{1,12}", job) is None:
        return None
    return next((folder / "jobs" / job / "runs").glob("[!.]*/report.html"), None)


def _has(token: bytes, header: str) -> bool:
    """Return whether a header Authorization has the token, as a browser's password or alone."""
    scheme, _, sent = header.partition(" ")
    found = sent.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        try:
            found = base64.b64decode(found, validate=True).partition(b":")[2]
        except ValueError:
            return False
    return hmac.compare_digest(found, token)
