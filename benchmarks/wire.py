"""The cost of a deployed round: bytes, seconds and memory, with clients over mutual TLS.

    python benchmarks/wire.py [--clients 10] [--rounds 20] [--no-broadcast]

A server in this process and client processes on loopback; in each round every client returns a
model of 356,298 parameters (CNN-3) untrained. The benchmark compares the bytes in the rounds'
reports with those counted at the sockets, and prints seconds per round and the peak memory above
that of each process after all clients have connected. Then benchmarks/broadcast.py measures the
broadcast of a large model.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from fedmx import Experiment, Server, serve
from layers.logic.round.exchange import ReportCosts
from layers.network import endpoint, make_ca, make_client_certificate, make_server_certificate
from layers.network.connection import Connection

MIB = 2**20


class CountedConnection(Connection):
    """A connection that counts the bytes between it and its socket."""

    total_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(CountedTransport(transport))

    def buffer_updated(self, nbytes: int) -> None:
        CountedConnection.total_bytes += nbytes
        super().buffer_updated(nbytes)


class CountedTransport:
    """A transport that counts written bytes."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        CountedConnection.total_bytes += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def main(clients: int, rounds: int) -> None:
    endpoint.Connection = CountedConnection
    with tempfile.TemporaryDirectory(prefix="fedmx-wire-") as name:
        folder = Path(name)
        make_ca(folder)
        make_server_certificate(folder)
        for number in range(clients):
            make_client_certificate(folder, f"client-{number}")
        server = serve(experiment(folder, clients, rounds), "wire")
        workers: list[subprocess.Popen[bytes]] = []
        try:
            with server:
                workers += [start(server, folder, number, clients) for number in range(clients)]
                measure(server, workers)
            for worker in workers:
                worker.wait(30)
        finally:
            for worker in workers:
                worker.kill()


def experiment(folder: Path, clients: int, rounds: int) -> Experiment:
    return Experiment(
        rounds=rounds,
        clients=clients,
        compute={
            "model": "cnn3",
            "data": "digits",
            "normalise": {"scale": 16},
            "train": {"steps": 0},
            "evaluate": {"every": rounds},
        },
        logic={"selector": {"name": "uniform", "fraction": 1.0}},
        network={
            "address": "127.0.0.1:0",
            "tls": {
                "ca": str(folder / "ca.pem"),
                "certificate": str(folder / "server.pem"),
                "key": str(folder / "server.key"),
            },
        },
    )


def start(server: Server, folder: Path, number: int, clients: int) -> subprocess.Popen[bytes]:
    name = f"client-{number}"
    command = [sys.executable, "-m", "fedmx", "client", server.network.address]
    command += ["--partition", f"{number}/{clients}", "--ca", str(folder / "ca.pem")]
    command += ["--cert", str(folder / f"{name}.pem"), "--key", str(folder / f"{name}.key")]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(server: Server, workers: list[subprocess.Popen[bytes]]) -> None:
    server.network.open_round(server.state)  # all are connected
    processes = [os.getpid(), *(worker.pid for worker in workers)]
    held = [reset_peak(process) for process in processes]
    at_first = CountedConnection.total_bytes
    server.network.exchange([ReportCosts()])
    seconds, reported = [], 0
    for round in server.rounds():
        print(
            f"round {round.round}: {round.seconds:.3f} s, "
            f"up {round.up_bytes}, down {round.down_bytes}, control {round.control_bytes} bytes"
        )
        if round.accuracy is not None:
            break  # the last round evaluates the model and says goodbye, so it is not comparable
        seconds.append(round.seconds)
        reported += round.up_bytes + round.down_bytes + round.control_bytes
        counted = CountedConnection.total_bytes - at_first
        peaks = [memory(process, "VmHWM") for process in processes]
    above = [(peak - before) / MIB for peak, before in zip(peaks, held, strict=True)]
    print(f"\n{len(workers)} client processes, {server.weights.size} parameters, mutual TLS")
    print(
        f"bytes in the reports {reported}, at the sockets {counted}: {_verdict(reported, counted)}"
    )
    print(f"seconds a round: median {statistics.median(seconds):.3f}, max {max(seconds):.3f}")
    print(f"peak memory above what was held: server {above[0]:.1f} MiB, ", end="")
    print(
        f"clients at most {max(above[1:]):.1f} MiB; the model has {server.weights.nbytes / MIB:.2f}"
    )


def _verdict(reported: int, counted: int) -> str:
    return "equal" if reported == counted else f"{counted - reported} apart"


def reset_peak(process: int) -> int:
    """Reset the kernel's peak measurement, and return the current memory in bytes."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return memory(process, "VmRSS")


def memory(process: int, key: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-broadcast", action="store_true")
    arguments = parser.parse_args()
    main(arguments.clients, arguments.rounds)
    if not arguments.no_broadcast:
        print("\nbroadcast of 100 MB to 20 clients, against bare asyncio sockets", flush=True)
        subprocess.run([sys.executable, Path(__file__).with_name("broadcast.py")], check=True)
