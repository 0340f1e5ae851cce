"""The effect of one hostile client on others: rounds per second with and without it, and memory.

    python benchmarks/flood.py [--rounds 20] [--clients 4] [--senders 20] [--mib 200]

A server on loopback with mutual TLS and a model of 356,298 parameters; the clients are in a
separate process and return the model untrained. The flooding client is another process, which
reconnects whenever it is disconnected. For each kind of flood the benchmark prints the rounds per
second of the others without it and with it (measured in turns in the same run), the messages that
the flood sent, and the lines in the log.

Then `--senders` processes send a message of `--mib` MiB each at the same time. Memory is that
of the listener's process: before, at its peak (VmHWM), and one second after they have left, without
Python's cycle collector.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fedmx.protocol.messages import CODEC, CannotTakePart, Ready, Setup
from layers.logic import Offer, Task, Update
from layers.network import (
    ClientTLS,
    Connector,
    Joined,
    Left,
    Limits,
    Listener,
    Received,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_server_certificate,
)
from layers.network.control import CONTROL, FileOffer, Hello
from layers.network.frames import SIZE, Kind, frame

MIB = 1 << 20
FLOODER = 99


def message(value: object) -> Callable[[int], bytes]:
    data = bytes(CODEC.encode(value))
    return lambda stream: (
        frame(Kind.MESSAGE, stream, SIZE.pack(len(data))) + frame(Kind.DATA, stream, data)
    )


KINDS: dict[str, Callable[[int], bytes]] = {
    "small messages": message(Offer(1, FLOODER, 10, 1.0)),
    "CannotTakePart": message(CannotTakePart(FLOODER, "let me in")),
    "file offers": lambda stream: frame(
        Kind.FILE_OFFER, stream, bytes(CONTROL.encode(FileOffer("a", 1, bytes(32))))
    ),
}


def tls_of(folder: Path, identity: str) -> ClientTLS:
    return ClientTLS(folder / f"{identity}.pem", folder / f"{identity}.key", folder / "ca.pem")


def server_tls(folder: Path) -> ServerTLS:
    return ServerTLS(folder / "server.pem", folder / "server.key", folder / "ca.pem")


# The other processes


def flood(address: str, folder: Path, kind: str) -> None:
    """Send as fast as possible until asked to end, then print the number of messages."""
    host, _, port = address.rpartition(":")
    context = tls_of(folder, f"client-{FLOODER}").context()
    sent = 0
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    while not ended.is_set():
        try:
            bare = socket.create_connection((host, int(port)), 20)
            raw = context.wrap_socket(bare, server_hostname=host)
            raw.recv(1 << 16)
            hello = Hello(1, f"client-{FLOODER}", [], bytes(32), 1 << 30, 8, b"")
            raw.sendall(frame(Kind.HELLO, 0, bytes(CONTROL.encode(hello))))
            raw.recv(1 << 16)
            raw.settimeout(1.0)
            streams = itertools.count(1)
            while not ended.is_set():
                raw.sendall(b"".join(KINDS[kind](next(streams)) for _ in range(200)))
                sent += 200
        except OSError:
            time.sleep(0.01)
        finally:
            bare.close()
    print(sent, flush=True)


def serve_clients(address: str, folder: Path, clients: int) -> None:
    """Run honest clients that return the model."""

    def one(number: int) -> None:
        name = f"client-{number}"
        with Connector(address, name, CODEC, tls=tls_of(folder, name)) as connector:
            while (event := connector.next_event()) is not None:
                match event:
                    case Received(message=Setup() as setup):
                        connector.send(Ready(setup.run, number, 10, ()))
                    case Received(message=Task() as task):
                        delta = np.zeros_like(task.weights)
                        buffers = task.buffers.copy()
                        update = Update(task.round, number, 10, 1, delta, buffers, {"loss": 1.0})
                        connector.send(update)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()


def send_large(address: str, folder: Path, number: int, mib: int) -> None:
    """Send one large message when asked to, and leave when asked to."""
    name = f"client-{number}"
    weights = np.zeros(mib * MIB // 4, np.float32)
    with Connector(address, name, CODEC, tls=tls_of(folder, name)) as connector:
        connector.next_event(60)
        print("ready", flush=True)
        sys.stdin.readline()
        connector.send(Update(1, number, 10, 1, weights, np.zeros(0, np.float32), {}))
        sys.stdin.readline()
    print("done", flush=True)


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--part", json.dumps([str(one) for one in arguments])]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


# Rounds


class Lines(logging.Handler):
    """Counts the lines of the server's log."""

    number = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.number += 1


def measure_rounds(folder: Path, clients: int, rounds: int, limit_s: float) -> None:
    from fedmx import RemoteClients, Server
    from layers.compute.data.dataset import Samples
    from layers.compute.engines.architectures import cnn3
    from layers.compute.engines.engine import Compute
    from layers.compute.engines.mxnet.engine import MXNetEngine
    from layers.logic import Logic
    from layers.logic.selectors.uniform import Uniform

    rng = np.random.default_rng(1)
    samples = Samples(rng.random((10, 1, 28, 28), np.float32), rng.integers(0, 10, 10))
    compute = Compute(MXNetEngine(cnn3, (1, 28, 28), 10), samples)
    logic = Logic(layout=compute.engine.layout, selector=Uniform(1.0), min_updates=1, seed=1)
    lines = Lines()
    logging.getLogger("fedmx.server").addHandler(lines)
    logging.getLogger("fedmx.server").propagate = False
    logging.getLogger("fedmx.server").setLevel(logging.INFO)
    listener = Listener("127.0.0.1:0", CODEC, tls=server_tls(folder))
    network = RemoteClients(listener, wait_for=clients)
    last = 100_000
    server = Server(network, logic, compute, last_round=last, evaluate_every=last)
    with server:
        others = start("clients", server.address, folder, clients)
        running = server.rounds()

        def rate() -> float:
            """Return rounds per second, over at most `rounds` rounds and `limit_s` seconds."""
            began, done = time.monotonic(), 0
            while done < rounds and time.monotonic() - began < limit_s:
                next(running)
                done += 1
            return done / (time.monotonic() - began)

        rate()  # all are connected, and warm
        for kind in KINDS:
            before = rate()
            lines.number = 0
            flooding = start("flood", server.address, folder, kind)
            ends = time.monotonic() + 20
            while f"client-{FLOODER}" not in listener.peers and time.monotonic() < ends:
                network._sessions.next_event(0.05)
            during = rate()
            tell(flooding)
            sent = int(read(flooding, network._sessions.next_event) or 0)
            print(
                f"{kind}: rounds a second without {before:.1f}, with {during:.1f} "
                f"({during / before:.2f}); {sent} messages left, {lines.number} log lines",
                flush=True,
            )
        others.kill()


def read(process: subprocess.Popen[str], meanwhile: Callable[[float], object]) -> str:
    """Return the output of a process while the server continues."""
    assert process.stdout is not None
    said: list[str] = []
    out = process.stdout
    thread = threading.Thread(target=lambda: said.append(out.readline()))
    thread.start()
    while thread.is_alive():
        meanwhile(0.05)
    process.kill()
    return said[0]


# Memory


def memory_mib(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


def measure_memory(folder: Path, senders: int, mib: int, budget_mib: int | None) -> None:
    gc.disable()
    budget = None if budget_mib is None else budget_mib * MIB
    settings = {} if budget is None else {"limits": Limits(max_incoming_bytes=budget)}
    with Listener("127.0.0.1:0", CODEC, tls=server_tls(folder), **settings) as listener:
        processes = [
            start("large", listener.address, folder, number, mib) for number in range(senders)
        ]
        joined = 0
        while joined < senders:
            joined += isinstance(listener.next_event(60), Joined)
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        Path("/proc/self/clear_refs").write_text("5")
        before = memory_mib("VmRSS")
        began = time.monotonic()
        for process in processes:
            tell(process)
        arrived = left = 0
        while arrived < senders:
            arrived += isinstance(listener.next_event(120), Received)
        seconds = time.monotonic() - began
        for process in processes:
            tell(process)
        while left < senders:
            left += isinstance(listener.next_event(60), Left)
        time.sleep(1.0)
        after, peak = memory_mib("VmRSS"), memory_mib("VmHWM")
    print(
        f"{senders} x {mib} MiB at once: {seconds:.1f} s; MiB before {before:.0f}, "
        f"peak {peak:.0f}, 1 s after they left {after:.0f}"
    )


def parts(arguments: list[str]) -> None:
    name, address, folder, *rest = arguments
    match name:
        case "flood":
            flood(address, Path(folder), rest[0])
        case "clients":
            serve_clients(address, Path(folder), int(rest[0]))
        case "large":
            send_large(address, Path(folder), int(rest[0]), int(rest[1]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--limit-s", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--senders", type=int, default=20)
    parser.add_argument("--mib", type=int, default=200)
    parser.add_argument("--budget-mib", type=int, default=None)
    parser.add_argument("--only", choices=["rounds", "memory"])
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        parts(json.loads(arguments.part))
        sys.exit()
    with tempfile.TemporaryDirectory(prefix="fedmx-flood-") as name:
        certificates = Path(name)
        make_ca(certificates)
        make_server_certificate(certificates)
        for number in (*range(max(arguments.clients, arguments.senders)), FLOODER):
            make_client_certificate(certificates, f"client-{number}")
        if arguments.only != "memory":
            measure_rounds(certificates, arguments.clients, arguments.rounds, arguments.limit_s)
        if arguments.only != "rounds":
            measure_memory(certificates, arguments.senders, arguments.mib, arguments.budget_mib)
