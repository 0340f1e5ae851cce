"""TLS of accepted connections, in little memory however many there are.

asyncio gives each connection a buffer of 256 KiB before its first byte. So this server's
connections begin with a small one. After the handshake they share one for what they receive.

OpenSSL keeps two buffers for each connection, a third larger than the most bytes that it was given
at a time. So it is given parts, between large reads and writes of the socket. The more connections
there are, the smaller the parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any

from layers.network.connection import Connection

BUFFER_BYTES = 4096  # read at a time during the handshake
HANDSHAKE_BYTES = 64 * 1024  # received until the certificate is verified; OpenSSL bounds the rest
OPENED_BYTES = 64 * 1024  # received bytes that OpenSSL is given at a time, at the least
SEALED_BYTES = 32 * 1024  # and bytes to send: two records of TLS


class _Securing(SSLProtocol):
    """asyncio's TLS, with a limit of bytes until the handshake is over, and small parts after it.

    asyncio has no public way for the parts. Where it lacks these names (Python 3.10), TLS just uses
    more memory.

    Attributes:
        in_parts: whether OpenSSL gets small parts, however many bytes are written at a time.
    """

    max_size = BUFFER_BYTES
    in_parts = hasattr(SSLProtocol, "_do_write")

    def __init__(self, connection: Connection, context: ssl.SSLContext, handshake_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.secured: asyncio.Future[None] = loop.create_future()
        self._received_bytes = 0
        self._connection = connection
        super().__init__(
            loop,
            connection,
            context,
            self.secured,
            server_side=True,
            ssl_handshake_timeout=handshake_s,  # type: ignore[arg-type]
        )

    def get_buffer(self, n: int) -> memoryview:
        """Return where to receive bytes (Python 3.11 and later)."""
        if self.secured.done():
            self._ssl_buffer = self._ssl_buffer_view = self._connection.sealed_buffer()
            return self._ssl_buffer
        return super().get_buffer(n)  # type: ignore[misc,no-any-return]

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes (Python 3.11 and later)."""
        if not self.secured.done():
            if self._are_few(nbytes):
                super().buffer_updated(nbytes)  # type: ignore[misc]
            return
        received = self._ssl_buffer[:nbytes]
        size = max(OPENED_BYTES, self._connection.at_a_time)
        for start in range(0, nbytes, size):
            self._ssl_buffer_view = received[start : start + size]
            super().buffer_updated(len(self._ssl_buffer_view))  # type: ignore[misc]

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

    def _do_write(self) -> None:
        """Encrypt what is to be written, part by part, and write it to the socket at once.

        While the socket takes nothing more, the rest waits as it is, without a copy.
        """
        tls: Any = self  # with names that only asyncio knows
        backlog, sealed = tls._write_backlog, []
        most = max(SEALED_BYTES, tls._connection.at_a_time)
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLSyscallError):
            while backlog and not self._must_wait():
                data = memoryview(backlog[0])  # a slice of bytes would copy all the rest
                size = tls._sslobj.write(data[:most])
                tls._write_buffer_size -= size
                if size < len(data):
                    backlog[0] = data[size:]
                else:
                    del backlog[0]
                if not tls._ssl_writing_paused:
                    sealed.append(tls._outgoing.read())
        if sealed:
            tls._transport.write(b"".join(sealed))  # not `writelines`, see `Connection`
        tls._process_outgoing()

    def _must_wait(self) -> bool:
        """Return whether the socket takes nothing more, and will not be closed."""
        tls: Any = self
        transport = tls._app_transport
        return tls._ssl_writing_paused and transport is not None and not transport.is_closing()

    def resume_writing(self) -> None:
        """Write what has waited; the socket takes bytes again."""
        super().resume_writing()
        if self.in_parts and self._write_backlog:
            self._write_appdata([])  # type: ignore[arg-type]


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
