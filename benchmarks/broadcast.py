"""Seconds to broadcast a model to client processes over mutual TLS, against bare asyncio sockets.

    python benchmarks/broadcast.py [--clients 20] [--parameters 25000000] [--repeats 3]

Both ways send the same bytes between the same number of processes on loopback with the same TLS,
in turns. The time runs from the first byte until every client has confirmed that it has received
everything. The bare way is plain asyncio: a stream written in chunks, received directly
into a buffer of the right size. Peak memory is the kernel's (VmHWM), minus the memory of the
process before the broadcast.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from layers.network import (
    CHUNK_BYTES,
    ClientTLS,
    Connected,
    Connector,
    Joined,
    Limits,
    Listener,
    MessageCodec,
    Received,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_server_certificate,
)


@dataclass(frozen=True, eq=False)
class Model:
    """Down: a model for one client."""

    client: str
    weights: np.ndarray


@dataclass(frozen=True)
class Report:
    """Up: confirms the arrival, with the peak memory in bytes."""

    client: str
    peak_bytes: int


CODEC = MessageCodec({1: Model, 2: Report})


def memory_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def reset_peak() -> int:
    """Reset the kernel's peak measurement, and return the current memory."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_bytes("VmRSS")


def client_tls(folder: Path, name: str) -> ClientTLS:
    return ClientTLS(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")


def fedmx_client(address: str, name: str, folder: Path, repeats: int) -> None:
    done, held, begun = 0, 0, 0.0
    with Connector(address, name, CODEC, tls=client_tls(folder, name)) as connector:
        while done < repeats:
            match connector.next_event():
                case Received(message=Model()):
                    done += 1
                    connector.send(Report(name, memory_bytes("VmHWM") - held))
                case Connected():
                    held, begun = reset_peak(), time.process_time()
    (folder / f"fedmx-{name}").write_text(str(time.process_time() - begun))


class Filling(asyncio.BufferedProtocol):
    """Receives into a buffer of the right size and answers with one byte."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.filled = 0
        self.first = memoryview(bytearray(CHUNK_BYTES))
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self.filled == 0:
            return self.first
        return self.view[self.filled : self.filled + CHUNK_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self.filled == 0:
            # Allocate here, so that the measured time includes the allocation.
            self.view = memoryview(bytearray(self.size))
            self.view[:nbytes] = self.first[:nbytes]
        self.filled += nbytes
        if self.filled == self.size:
            self.transport.write(b"!")
            self.filled, self.view = 0, self.first

    def eof_received(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set_result(None)


async def bare_client(address: str, name: str, folder: Path, size: int) -> None:
    host, port = address.split(":")
    loop = asyncio.get_running_loop()
    context = client_tls(folder, name).context()
    _, protocol = await loop.create_connection(lambda: Filling(size), host, int(port), ssl=context)
    begun = time.process_time()
    await protocol.done
    (folder / f"bare-{name}").write_text(str(time.process_time() - begun))


class Bare:
    """The server's end of the bare way."""

    async def start(self, context: ssl.SSLContext) -> str:
        self.streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.server = await asyncio.start_server(self.joined, "127.0.0.1", 0, ssl=context)
        host, port = self.server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams.append((reader, writer))

    async def broadcast(self, data: memoryview) -> float:
        begun = time.perf_counter()
        await asyncio.gather(*(self.send(*stream, data) for stream in self.streams))
        return time.perf_counter() - begun

    async def send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: memoryview
    ) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            writer.write(data[start : start + CHUNK_BYTES])
            await writer.drain()
        await reader.readexactly(1)


def spawn(way: str, address: str, names: list[str], folder: Path, options: list[str]) -> list:
    command = [sys.executable, __file__, way, "--address", address, "--folder", str(folder)]
    return [subprocess.Popen([*command, "--name", name, *options]) for name in names]


def run(clients: int, parameters: int, repeats: int) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp(prefix="fedmx-broadcast-"))
    make_ca(folder)
    server = make_server_certificate(folder)
    names = [f"client-{number}" for number in range(clients)]
    for name in names:
        make_client_certificate(folder, name)
    tls = ServerTLS(server.certificate, server.key, folder / "ca.pem")
    weights = np.random.default_rng(1).standard_normal(parameters).astype(np.float32)
    options = ["--repeats", str(repeats + 1)]

    # Both ways connect before the first broadcast and take turns, so that other work on the
    # machine affects both equally.
    loop = asyncio.new_event_loop()
    bare = Bare()
    address = loop.run_until_complete(bare.start(tls.context()))
    size = CODEC.encode(Model(names[0], weights)).size
    processes = spawn("bare-client", address, names, folder, [*options, "--size", str(size)])
    ours: list[float] = []
    theirs: list[float] = []
    cpu = {"fedmx": 0.0, "bare": 0.0}
    server_peak, client_peak = 0, 0
    with Listener("127.0.0.1:0", CODEC, tls=tls, limits=Limits(handshake_s=60)) as listener:
        processes += spawn("fedmx-client", listener.address, names, folder, options)
        joined = 0
        while joined < clients:
            joined += isinstance(listener.next_event(120), Joined)
        while len(bare.streams) < clients:
            loop.run_until_complete(asyncio.sleep(0.05))
        data = memoryview(bytes(size))
        for repeat in range(repeats + 1):
            held = reset_peak()
            begun, cpu_before = time.perf_counter(), time.process_time()
            for name in names:
                listener.send(name, Model(name, weights))
            reported = 0
            while reported < clients:
                match listener.next_event(300):
                    case Received(message=Report(peak_bytes=peak)):
                        reported += 1
                        client_peak = max(client_peak, peak)
                    case None:
                        raise SystemExit("no answer from a client within 300 s")
            ours.append(time.perf_counter() - begun)
            server_peak = max(server_peak, memory_bytes("VmHWM") - held)
            cpu_between = time.process_time()
            theirs.append(loop.run_until_complete(bare.broadcast(data)))
            if repeat == 0:
                # The first repeat does not count: a virtual machine gets its memory only then.
                ours.clear(), theirs.clear()
                continue
            cpu["fedmx"] += cpu_between - cpu_before
            cpu["bare"] += time.process_time() - cpu_between
        for _, writer in bare.streams:
            writer.close()
        loop.run_until_complete(asyncio.sleep(0.1))
    for process in processes:
        process.wait(timeout=30)
    for way in cpu:
        clients_s = sum(float((folder / f"{way}-{name}").read_text()) for name in names)
        cpu[way] = (cpu[way] / repeats) + clients_s / (repeats + 1)
    return {
        "clients": clients,
        "payload_bytes": size,
        "fedmx_s": [round(value, 3) for value in ours],
        "bare_asyncio_s": [round(value, 3) for value in theirs],
        "ratio": round(statistics.median(ours) / statistics.median(theirs), 3),
        "fedmx_cpu_s": round(cpu["fedmx"], 3),
        "bare_asyncio_cpu_s": round(cpu["bare"], 3),
        "cpu_ratio": round(cpu["fedmx"] / cpu["bare"], 3),
        "server_peak_above_model_mb": round(server_peak / 1e6, 1),
        "client_peak_mb": round(client_peak / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", nargs="?", choices=["fedmx-client", "bare-client"])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    for hidden in ("--address", "--name", "--folder", "--size"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way == "fedmx-client":
        fedmx_client(given.address, given.name, Path(given.folder), given.repeats)
    elif given.way == "bare-client":
        folder, size = Path(given.folder), int(given.size)
        asyncio.run(bare_client(given.address, given.name, folder, size))
    else:
        print(json.dumps(run(given.clients, given.parameters, given.repeats), indent=2))


if __name__ == "__main__":
    main()
