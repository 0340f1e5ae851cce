"""An HTTP proxy on loopback that knows nothing but CONNECT; it has names of its own for servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import TracebackType

from layers.network.endpoint import LoopThread


class ConnectProxy:
    """A proxy inside a with statement.

    Args:
        names: the address, HOST:PORT, to which each name leads.
        answer: what it answers in place of connecting; empty: it closes; None: it connects.

    Attributes:
        hangs: whether it does not answer.
        asked: the requests so far, with their headers.
    """

    def __init__(self, names: Mapping[str, str], answer: bytes | None = None) -> None:
        self.names, self.answer = names, answer
        self.hangs = False
        self.asked: list[str] = []

    def __enter__(self) -> ConnectProxy:
        self._thread = LoopThread("proxy")
        self._server = self._thread.run(self._listen())
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.soon(self._server.close)
        self._thread.stop()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.hangs:
            await reader.read()  # until the client closes
        if self.answer is not None:
            writer.write(self.answer)
            return writer.close()
        host, port = self.names[self.asked[-1].split()[1]].split(":")
        there, to = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: tests\r\n\r\n")
        await asyncio.gather(_copy(reader, to), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    writer.close()
