"""Memory of a server while outsiders without a certificate begin TLS and stop, and afterwards.

    python benchmarks/handshakes.py [--strangers 2100]

A listener with mutual TLS is in this process, then `fedmx server` is in another one, and so are the
outsiders. Some send a ClientHello and wait, some announce the longest ClientHello that OpenSSL
takes and send a part of it. They stay for some seconds and leave at once. Each line has the
resident memory before, the largest one, and that one second after they left, in MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.silent import client_hello
from fedmx.monitoring.monitor import resident_bytes
from layers.network import (
    Listener,
    MessageCodec,
    ServerTLS,
    make_ca,
    make_server_certificate,
)
from layers.network.address import raise_file_limit

KINDS = {"hello": "a ClientHello", "announced": "the beginning of a long ClientHello"}
ANNOUNCED_BYTES = 131_000
STAY_S = 5.0
EXPERIMENT = """
rounds: 10
clients: 10
network: {address: "127.0.0.1:0"}
compute: {model: lenet5, data: digits, normalise: {scale: 16}}
logic: {preset: fedavg}
"""


def main(strangers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fedmx-handshakes-") as name:
        folder = Path(name)
        make_ca(folder)
        make_server_certificate(folder)
        for server, where in ((listener, "listener"), (process, "fedmx server")):
            for kind, words in KINDS.items():
                with server(folder) as (address, pid):
                    before = largest = mebibytes(pid)
                    command = [sys.executable, __file__, kind, address]
                    crowd = subprocess.Popen([*command, "--strangers", str(strangers)])
                    while crowd.poll() is None:
                        largest = max(largest, mebibytes(pid))
                        time.sleep(0.02)
                    time.sleep(1.0)
                    print(
                        f"{where}: {strangers} with {words}: {before:.0f} MiB before, "
                        f"{largest:.0f} MiB at most, {mebibytes(pid):.0f} MiB one second after "
                        "they left",
                        flush=True,
                    )


@contextlib.contextmanager
def listener(folder: Path) -> Iterator[tuple[str, int]]:
    """Listen in this process; yield the address and the process's id."""
    tls = ServerTLS(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    with Listener("127.0.0.1:0", MessageCodec({}), tls=tls) as one:

        def take_events() -> None:
            while one.next_event(None) is not None:
                pass

        taking = threading.Thread(target=take_events)
        taking.start()
        yield one.address, os.getpid()
    taking.join()


@contextlib.contextmanager
def process(folder: Path) -> Iterator[tuple[str, int]]:
    """Start `fedmx server`; yield its address and its process's id."""
    file = folder / "experiment.yaml"
    file.write_text(EXPERIMENT)
    files = {"ca": "ca.pem", "cert": "server.pem", "key": "server.key"}
    words = [word for name, path in files.items() for word in (f"--{name}", str(folder / path))]
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "fedmx", "server", str(file), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
            stderr=output,
        )
    try:
        while "listening on " not in (text := log.read_text()):
            if server.poll() is not None:
                raise SystemExit(text)
            time.sleep(0.1)
        yield text.partition("listening on ")[2].split()[0], server.pid
    finally:
        server.kill()
        server.wait()


def mebibytes(pid: int) -> float:
    return (resident_bytes(pid) or 0) / (1 << 20)


def crowd(kind: str, address: str, strangers: int) -> None:
    """Open all connections, send the first bytes of TLS, and stay."""
    raise_file_limit()
    host, port = address.split(":")
    content = client_hello(ssl.create_default_context())
    if kind == "announced":
        # The header of a record of 16 KiB, that of the ClientHello, and half of the record.
        record = b"\x16\x03\x01\x40\x00\x01" + ANNOUNCED_BYTES.to_bytes(3, "big")
        content = record + content[9:] + bytes(8192)
    opened = []
    for _ in range(strangers):
        opened.append(socket.create_connection((host, int(port))))
        opened[-1].sendall(content)
    time.sleep(STAY_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="?", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("address", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--strangers", type=int, default=2100)
    arguments = parser.parse_args()
    if arguments.kind is None:
        main(arguments.strangers)
    else:
        crowd(arguments.kind, arguments.address, arguments.strangers)
