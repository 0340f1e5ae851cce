"""TLS of accepted connections until the peer's certificate is verified, in little memory.

asyncio gives each connection a buffer of 256 KiB before its first byte. So this server's
connections begin with a small one, which `Connection.resize` replaces after the handshake.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import ssl
from asyncio.sslproto import SSLProtocol

from layers.network.connection import Connection

BUFFER_BYTES = 4096  # read at a time during the handshake
HANDSHAKE_BYTES = 64 * 1024  # received until the certificate is verified; OpenSSL bounds the rest


class _Securing(SSLProtocol):
    """asyncio's TLS with a small buffer and a limit of bytes until the handshake is over."""

    max_size = BUFFER_BYTES

    def __init__(self, connection: Connection, context: ssl.SSLContext, handshake_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.secured: asyncio.Future[None] = loop.create_future()
        self._received_bytes = 0
        super().__init__(
            loop,
            connection,
            context,
            self.secured,
            server_side=True,
            ssl_handshake_timeout=handshake_s,  # type: ignore[arg-type]
        )

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes (Python 3.11 and later)."""
        if self._are_few(nbytes):
            super().buffer_updated(nbytes)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        """Take received bytes (Python 3.10)."""
        if self._are_few(len(data)):
            super().data_received(data)

    def _are_few(self, size_bytes: int) -> bool:
        if self.secured.done():
            return True
        self._received_bytes += size_bytes
        if self._received_bytes <= HANDSHAKE_BYTES:
            return True
        text = f"more than {HANDSHAKE_BYTES} bytes before its certificate was verified"
        self._fatal_error(ConnectionAbortedError(text))
        return False


async def secure(
    accepted: socket.socket, connection: Connection, context: ssl.SSLContext, handshake_s: float
) -> None:
    """Do the TLS handshake of an accepted socket, and give the connection its transport.

    Raises:
        OSError: the handshake failed, took longer than `handshake_s`, or too many bytes.
    """
    loop = asyncio.get_running_loop()
    protocol = _Securing(connection, context, handshake_s)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
    try:
        await protocol.secured
    except BaseException:
        transport.abort()
        raise


def return_memory() -> None:
    """Give free memory of the C library's allocator back to the system, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
