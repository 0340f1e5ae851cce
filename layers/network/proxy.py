"""A way through a proxy: TCP to it, HTTP CONNECT (RFC 9110, section 9.3.6), and then the server."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from layers.network.address import NO_NAME, Address
from layers.network.errors import AddressError

MOST_BYTES = 16 << 10  # of a proxy's answer
ADVICE = "check HTTPS_PROXY, or name the server in NO_PROXY"


@dataclass(frozen=True)
class Proxy:
    """A proxy that connects to others; `str` gives HOST:PORT.

    Attributes:
        address: where it listens.
        credentials: NAME:PASSWORD; None: it asks for none.
    """

    address: Address
    credentials: str | None = field(default=None, repr=False)

    @classmethod
    def to(cls, address: Address) -> Proxy | None:
        """Return the proxy of the environment (HTTPS_PROXY, NO_PROXY) to an address; None: none.

        Raises:
            AddressError: it is not one of the form http://[NAME:PASSWORD@]HOST:PORT.
        """
        if address.is_loopback:
            return None
        from urllib.request import getproxies, proxy_bypass  # slow to import

        url = getproxies().get("https")
        if not url or proxy_bypass(str(address)):
            return None
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port or 80
        except ValueError:
            parts, host = urlsplit(""), None
        if host is None or parts.scheme != "http":
            raise AddressError("HTTPS_PROXY: must have the form http://HOST:PORT")
        credentials = None
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(Address(host, port), credentials)

    def __str__(self) -> str:
        return str(self.address)

    async def connect(self, address: Address) -> socket.socket:
        """Return a socket whose other end is the server at an address.

        Raises:
            ConnectionError: the proxy cannot be reached, closes the connection, or refuses.
        """
        try:
            reached = await self._reach()
        except UnicodeError:
            raise ConnectionError(f"the proxy {self}: {NO_NAME}: {ADVICE}") from None
        except OSError as error:
            unknown = isinstance(error, socket.gaierror)
            why = error.strerror if unknown else os.strerror(error.errno or 0)
            raise ConnectionError(f"the proxy {self}: {why}: {ADVICE}") from None
        try:
            await self._ask(reached, address)
        except BaseException:
            reached.close()
            raise
        return reached

    async def _reach(self) -> socket.socket:
        """Return a connection to the first of the proxy's addresses that answers."""
        loop, host, port = asyncio.get_running_loop(), self.address.host, self.address.port
        *others, last = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for found in (*others, last):
            connection = socket.socket(found[0])
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, found[4])
                return connection
            except BaseException as error:
                connection.close()
                if found is last or not isinstance(error, OSError):
                    raise
        raise AssertionError("the last one returns or raises")

    async def _ask(self, connection: socket.socket, address: Address) -> None:
        lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        if self.credentials is not None:
            encoded = base64.b64encode(self.credentials.encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {encoded}")
        loop, answer = asyncio.get_running_loop(), b""
        try:
            await loop.sock_sendall(connection, "\r\n".join([*lines, "", ""]).encode())
            while not answer.endswith(b"\r\n\r\n"):
                # Byte by byte: what follows the answer is the server's.
                received = await loop.sock_recv(connection, 1)
                if not received or len(answer) == MOST_BYTES:
                    break
                answer += received
        except OSError:
            answer = b""
        found = re.match(rb"HTTP/1\.[01] (\d{3})[^\r\n]*", answer)
        if found is None or not answer.endswith(b"\r\n\r\n"):
            raise ConnectionError(
                f"the proxy {self} ends the connection, or is not a proxy: {ADVICE}"
            )
        if found[1] == b"407":
            form = "http://NAME:PASSWORD@HOST:PORT"
            raise ConnectionError(f"the proxy {self} wants another password: HTTPS_PROXY={form}")
        if not found[1].startswith(b"2"):
            code = found[1].decode()
            raise ConnectionError(f"the proxy {self} refuses with {code}: have it allow {address}")
