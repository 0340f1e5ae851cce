"""Connections that one process accepts and hands to another, which does TLS and the rest.

The two have the ends of a Unix socket pair: a message has the client's address, and the
connection's descriptor with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import msgpack

MOST_BYTES = 512  # of an address
Where = tuple[Any, ...]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the ends of the process that hands connections, and of the one that takes them."""
    giving, taking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    giving.setblocking(False)
    taking.setblocking(False)
    return giving, taking


def give(giving: socket.socket, accepted: socket.socket) -> bool:
    """Hand a connection over, and close it here; return whether the other process can take it."""
    with accepted, contextlib.suppress(OSError):
        where = msgpack.packb(accepted.getpeername()[:2])
        return socket.send_fds(giving, [where], [accepted.fileno()]) > 0
    return False


async def take(taking: socket.socket) -> tuple[socket.socket, Where]:
    """Return the next connection and its client's address; wait for it.

    When the other process has ended, no further one comes.
    """
    loop = asyncio.get_running_loop()
    while True:
        readable = asyncio.Event()
        loop.add_reader(taking, readable.set)
        try:
            await readable.wait()
        finally:
            if taking.fileno() >= 0:  # whoever closes it, removes the reader first
                loop.remove_reader(taking)
        with contextlib.suppress(BlockingIOError):
            where, descriptors, _, _ = socket.recv_fds(taking, MOST_BYTES, 1)
            if not where:
                await loop.create_future()
            if descriptors:
                return socket.socket(fileno=descriptors[0]), tuple(msgpack.unpackb(where))
