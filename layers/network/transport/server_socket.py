"""The listening socket, and the file descriptors that are left for the connections behind it."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket

from layers.network.errors import AddressError
from layers.network.transport.address import NO_NAME, Address

BACKLOG = 1024
WANTED_FILES = 16_384
KEPT_FILES = 64  # for checkpoints, reports and whatever else this process opens
KEPT_FOR_HANDSHAKES = 16  # so that a client for whom there is no room can be told so


def listen(address: Address) -> socket.socket:
    """Return a socket that listens at an address, and does not block.

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
    """Return how many files this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def free_descriptors() -> int:
    """Return how many connections can be accepted, if `KEPT_FILES` stay free; below 1: none.

    The system gives a new socket the lowest number that is free, so one that is closed again tells
    what number the next connection would have.
    """
    limit = file_limit()
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            lowest = probe.fileno()
    except OSError:
        return 0
    return limit - min(KEPT_FILES, limit // 4) - lowest
