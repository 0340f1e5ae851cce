"""Memory of a listener while outsiders without a certificate begin TLS and stop, and afterwards.

    python benchmarks/handshakes.py [--strangers 2100]

The listener with mutual TLS is in this process, the outsiders are in another one. Some send a
ClientHello and wait, some announce the longest ClientHello that OpenSSL takes and send a part of
it. They stay for some seconds and leave at once. Each line has the resident memory before, the
largest one, and that one second after they left, in MiB.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
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


def main(strangers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fedmx-handshakes-") as name:
        folder = Path(name)
        make_ca(folder)
        make_server_certificate(folder)
        tls = ServerTLS(folder / "server.pem", folder / "server.key", folder / "ca.pem")
        for kind, words in KINDS.items():
            with Listener("127.0.0.1:0", MessageCodec({}), tls=tls) as listener:
                before = largest = mebibytes()
                command = [sys.executable, __file__, kind, listener.address]
                crowd = subprocess.Popen([*command, "--strangers", str(strangers)])
                while crowd.poll() is None:
                    largest = max(largest, mebibytes())
                    while listener.next_event(0.0) is not None:
                        pass
                    time.sleep(0.02)
                time.sleep(1.0)
                print(
                    f"{strangers} with {words}: {before:.0f} MiB before, {largest:.0f} MiB at "
                    f"most, {mebibytes():.0f} MiB one second after they left",
                    flush=True,
                )


def mebibytes() -> float:
    return (resident_bytes() or 0) / (1 << 20)


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
