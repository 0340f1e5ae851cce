"""How long an honest client takes to join beside outsiders that open silent connections.

    python benchmarks/silent.py [--strangers 500] [--clients 10]

The listener with mutual TLS is in this process, the outsiders are in another one: each reopens its
connection as soon as it is closed. Some send nothing, some send the first byte of a ClientHello,
some send all of it and nothing more, and some have one client's certificate and are silent after
TLS. Beside each kind, and without any, honest clients join one after the other. Each line has
the median and the longest time to join, and the median's ratio to that without outsiders.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layers.network import (
    ClientTLS,
    Connected,
    Connector,
    Listener,
    MessageCodec,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_server_certificate,
)

KINDS = {
    "none": "nobody",
    "silent": "who say nothing",
    "byte": "who send one byte",
    "hello": "who begin TLS and stop",
    "certificate": "with a client's certificate, silent after TLS",
}
SETTLE_S = 3.0  # until the strangers are all there


def main(strangers: int, clients: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fedmx-silent-") as name:
        folder = Path(name)
        make_ca(folder)
        make_server_certificate(folder)
        for number in range(clients + 1):
            make_client_certificate(folder, f"client-{number}")
        usual = 0.0
        for kind, words in KINDS.items():
            took = beside(kind, strangers, clients, folder)
            median = statistics.median(took)
            usual = usual or median
            many = "beside nobody" if kind == "none" else f"beside {strangers} {words}"
            print(
                f"{many}: in after {median:.3f} s, at most {max(took):.3f} s, "
                f"ratio {median / usual:.1f}",
                flush=True,
            )


def beside(kind: str, strangers: int, clients: int, folder: Path) -> list[float]:
    """Return the time to join of each honest client, in seconds."""
    tls = ServerTLS(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    with (
        Listener("127.0.0.1:0", MessageCodec({}), tls=tls) as listener,
        contextlib.ExitStack() as stack,
    ):
        if kind != "none":
            command = [sys.executable, __file__, kind, listener.address, str(folder)]
            crowd = subprocess.Popen([*command, "--strangers", str(strangers)])
            stack.callback(crowd.wait)
            stack.callback(crowd.kill)
            time.sleep(SETTLE_S)
        return [honest(listener, folder, number) for number in range(1, clients + 1)]


def honest(listener: Listener, folder: Path, number: int) -> float:
    name = f"client-{number}"
    tls = ClientTLS(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
    with Connector(listener.address, name, MessageCodec({}), tls=tls) as connector:
        began = time.monotonic()
        while not isinstance(connector.next_event(60.0), Connected):
            if time.monotonic() - began > 100:
                break
        return time.monotonic() - began


async def crowd(kind: str, address: str, folder: Path, strangers: int) -> None:
    host, port = address.split(":")
    await asyncio.gather(*(stranger(kind, host, int(port), folder) for _ in range(strangers)))


async def stranger(kind: str, host: str, port: int, folder: Path) -> None:
    """Open a connection, and again whenever it is closed."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if kind == "certificate":
        context.load_cert_chain(folder / "client-0.pem", folder / "client-0.key")
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            secure = {"ssl": context, "server_hostname": host} if kind == "certificate" else {}
            reader, writer = await asyncio.open_connection(host, port, **secure)
            if kind in ("byte", "hello"):
                writer.write(client_hello(context)[: 1 if kind == "byte" else None])
            while await reader.read(1 << 16):
                pass
            writer.close()
        await asyncio.sleep(0.001)


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return the first flight of TLS."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="?", choices=[*KINDS][1:], help=argparse.SUPPRESS)
    parser.add_argument("address", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--strangers", type=int, default=500)
    parser.add_argument("--clients", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.kind is None:
        main(arguments.strangers, arguments.clients)
    else:
        asyncio.run(crowd(arguments.kind, arguments.address, arguments.folder, arguments.strangers))
