"""Addresses, the socket that listens at one, and the descriptors left for connections."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import resource
import socket
from dataclasses import dataclass

from layers.network.errors import AddressError

NO_NAME = "not a valid host name"  # looking it up raises a UnicodeError


@dataclass(frozen=True)
class Address:
    """The address of a server; `str` gives HOST:PORT, with brackets around an IPv6 host."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse HOST:PORT or [IPV6]:PORT.

        Raises:
            AddressError: it is neither.
        """
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not host or (":" in host and not bracketed) or " " in host:
            raise AddressError(
                f"address {text!r}: write HOST:PORT, such as 127.0.0.1:9000 or [::1]:9000"
            )
        if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
            raise AddressError(f"address {text!r}: the port must be a number from 0 to 65535")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine, as far as known without a name server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_safe(self, *, tls: bool, insecure: bool) -> None:
        """Check that no unencrypted bytes leave this machine, unless `insecure`.

        Raises:
            AddressError: there is no TLS, the address is not loopback, and `insecure` is False.
        """
        if not (tls or insecure or self.is_loopback):
            raise AddressError(
                f"{self} is not on this machine and there is no TLS: make certificates "
                "(fedmx certs) and give them, or allow it with insecure: true (--insecure)"
            )


BACKLOG = 1024
WANTED_FILES = 16_384
KEPT_FILES = 64  # for checkpoints, reports and other files of this process
KEPT_FOR_HANDSHAKES = 16  # to tell a client that there is no room for it


def listen(address: Address) -> socket.socket:
    """Return a non-blocking socket that listens at an address.

    Raises:
        AddressError: the host is unknown, the port is in use, or the address is not this machine's.
    """
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise AddressError(f"{address}: unknown host ({error.strerror}): check the name") from None
    except UnicodeError:
        raise AddressError(f"{address}: unknown host ({NO_NAME}): check the name") from None
    family, where = found[0][0], found[0][4]
    try:
        server = socket.create_server(where[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        meanings = {
            errno.EADDRINUSE: "the port is in use: stop the other program or choose another port",
            errno.EACCES: "not allowed: choose a port from 1024 on",
            errno.EADDRNOTAVAIL: "not an address of this machine: choose one that is, or 0.0.0.0",
        }
        meaning = meanings.get(error.errno or 0, f"cannot listen ({error.strerror})")
        raise AddressError(f"{address}: {meaning}") from None
    server.setblocking(False)
    return server


def raise_file_limit() -> None:
    """Raise the limit on open files to `WANTED_FILES`, or as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def file_limit() -> int:
    """Return the number of files that this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def free_descriptors() -> int:
    """Return how many connections can be accepted while `KEPT_FILES` stay free; below 1: none.

    A new socket gets the lowest free descriptor, so a probe finds the next connection's.
    """
    limit = file_limit()
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            lowest = probe.fileno()
    except OSError:
        return 0
    return limit - min(KEPT_FILES, limit // 4) - lowest
