"""A bare asyncio server with mutual TLS, beside which `load.py` measures a server of fedmx.

    python benchmarks/bare_server.py --clients N --parameters D --folder CERTIFICATES

It does the handshake of fedmx, so that the same clients take part. Beyond that it only moves bytes:
for each line that it reads from standard input it sends one task, which was encoded once, to all
clients, and counts received bytes until each client's update is complete. It prints its address,
then the seconds and the processor seconds of each round. It neither decodes, checks, stores
nor sums updates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from fedmx.protocol.messages import CODEC, Finished, Ready, Setup
from layers.logic import Task, Training, Update
from layers.network import ServerTLS
from layers.network.connection import peer_certificate
from layers.network.events import Arrived, Verified
from layers.network.frames import CHUNK_BYTES, HEADER, SIZE, Kind, frame, wire_size
from layers.network.handshake import ServerSession
from layers.network.tls import common_name

SILENT_S = 3600.0  # no heartbeats between the messages
SAMPLES = 10  # of each client of `load.py`


class Bare(asyncio.BufferedProtocol):
    """One client: fedmx's handshake, then bytes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.missing = 0  # bytes of the update
        self.unsent: list[memoryview] = []
        self.paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.session: ServerSession | None = ServerSession(
            CODEC,
            time.monotonic(),
            certified=common_name(peer_certificate(transport)) or "",
            heartbeat_s=SILENT_S,
            heartbeat_timeout_s=4 * SILENT_S,
        )
        self.flush(self.session)

    def flush(self, session: ServerSession) -> None:
        while pieces := session.data_to_send(CHUNK_BYTES, time.monotonic()):
            self.transport.writelines(pieces)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.server.scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self.session is not None:
            self.shake_hands(self.session, nbytes)
            return
        self.missing -= nbytes
        if self.missing == 0:
            self.server.ended()

    def shake_hands(self, session: ServerSession, nbytes: int) -> None:
        for event in session.receive_data(self.server.scratch[:nbytes], time.monotonic()):
            match event:
                case Verified():
                    session.admit()
                    session.send_message(CODEC.encode(Setup("bare", "", "", 0, (), 0)))
                case Arrived(message=Ready()):
                    self.session = None
                    self.server.ready.append(self)
        self.flush(session)

    def begin(self, task: bytes, update_bytes: int) -> None:
        view = memoryview(task)
        self.missing = update_bytes
        self.unsent = [view[at : at + CHUNK_BYTES] for at in range(0, len(view), CHUNK_BYTES)]
        self.send()

    def send(self) -> None:
        while self.unsent and not self.paused:
            self.transport.write(self.unsent.pop(0))

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.send()

    def eof_received(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


class Server:
    """All clients, and the rounds."""

    def __init__(self, clients: int, parameters: int) -> None:
        self.clients = clients
        self.scratch = memoryview(bytearray(CHUNK_BYTES))
        self.ready: list[Bare] = []
        self.left = 0
        vector, none = np.ones(parameters, np.float32), np.zeros(0, np.float32)
        self.task = Task(1, 0, 1, Training(steps=1), vector, none)
        update = Update(1, 0, SAMPLES, 1, vector, none, {"loss": 1.0})
        self.update_bytes = wire_size(CODEC.encode(update).size)
        self.stream = 1  # of the last message on each connection, the setup

    def framed(self, message: object) -> bytes:
        """Return the bytes of the next message on every connection."""
        self.stream += 1
        whole = bytes(CODEC.encode(message))
        parts = [frame(Kind.MESSAGE, self.stream, SIZE.pack(len(whole)))]
        for at in range(0, len(whole), CHUNK_BYTES):
            chunk = whole[at : at + CHUNK_BYTES]
            parts += [HEADER.pack(Kind.DATA, 0, self.stream, len(chunk)), chunk]
        return b"".join(parts)

    def ended(self) -> None:
        self.left -= 1
        if not self.left:
            self.over.set_result(None)

    async def round(self) -> None:
        self.left, self.over = len(self.ready), asyncio.get_running_loop().create_future()
        task = self.framed(self.task)
        for client in self.ready:
            client.begin(task, self.update_bytes)
        await self.over

    async def run(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        tls = ServerTLS(folder / "server.pem", folder / "server.key", folder / "ca.pem")
        server = await loop.create_server(
            lambda: Bare(self), "127.0.0.1", 0, ssl=tls.context(), ssl_handshake_timeout=300
        )
        host, port = server.sockets[0].getsockname()
        print(f"{host}:{port}", flush=True)
        while len(self.ready) < self.clients:
            await asyncio.sleep(0.1)
        print("ready", flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            began, cpu_s = time.perf_counter(), time.process_time()
            await self.round()
            took = time.perf_counter() - began, time.process_time() - cpu_s
            print(json.dumps(took), flush=True)
        over = self.framed(Finished("over"))
        for client in self.ready:
            client.transport.write(over)
        await asyncio.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--parameters", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(Server(given.clients, given.parameters).run(given.folder))


if __name__ == "__main__":
    main()
