"""The effect of clients that stall on the others: rounds per second with and without them.

    python benchmarks/stalling.py [--clients 4] [--seconds 120] [--kinds silent flapping ...]

A server on loopback with mutual TLS, the model 2NN and the default limits; the
honest clients are in a separate process and return the model untrained. For each kind of attack the
benchmark prints the rounds per second of `--seconds` without and with it, measured one after the
other in the same run, and how often a round has waited for the attacker in vain.

    silent     takes each task, answers none, and comes back when it is given up
    flapping   takes each task, cuts the connection and returns at once
    vanishing  eight clients take their tasks and vanish
    fighting   two processes with the certificate of client 0 connect again and again
    paused     the server's process is stopped for 40 s (SIGSTOP); nobody attacks
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fedmx.protocol.messages import CODEC, Ready, Setup
from layers.logic import Task, Update
from layers.network import (
    Backoff,
    ClientTLS,
    Connector,
    GaveUp,
    Listener,
    Received,
    ServerTLS,
    make_ca,
    make_client_certificate,
    make_server_certificate,
)

KINDS = ("silent", "flapping", "vanishing", "fighting", "paused")
VANISHING = 8
PAUSE_S = 40.0


def connect(address: str, folder: Path, client: int) -> Connector:
    """Return a connector of a client."""
    name = f"client-{client}"
    tls = ClientTLS(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
    return Connector(address, name, CODEC, tls=tls, backoff=Backoff(first_s=0.05, longest_s=0.1))


def take_part(address: str, folder: Path, client: int, kind: str) -> None:
    """Return the model of each task, or attack; connect again whenever the connection has ended."""
    while True:
        with connect(address, folder, client) as connector:
            while not isinstance(event := connector.next_event(), GaveUp):
                match event:
                    case Received(message=Setup() as setup):
                        connector.send(Ready(setup.run, client, 10, ()))
                    case Received(message=Task() as task) if kind in ("honest", "fighting"):
                        time.sleep(0.1)  # it trains
                        connector.send(update_of(task))
                    case Received(message=Task()) if kind != "silent":
                        break
        time.sleep(5.0 if kind == "vanishing" else 0.05)


def update_of(task: Task) -> Update:
    """Return an update that does not change the model."""
    delta, loss = np.zeros_like(task.weights), {"loss": 1.0}
    return Update(task.round, task.client, 10, 1, delta, task.buffers, loss)


def run_part(kind: str, address: str, folder: Path, clients: list[int]) -> None:
    """Run clients in this process until it is killed."""
    for client in clients:
        threading.Thread(target=take_part, args=(address, folder, client, kind)).start()


def start(kind: str, address: str, folder: Path, clients: list[int]) -> subprocess.Popen[bytes]:
    """Start a process with clients."""
    part = json.dumps([kind, address, str(folder), clients])
    command = [sys.executable, __file__, "--part", part]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def measure(kind: str, folder: Path, clients: int, seconds: float) -> None:
    """Print the rates of one kind."""
    from fedmx import RemoteClients, Server
    from layers.compute.data.dataset import Samples
    from layers.compute.engines.architectures import two_nn
    from layers.compute.engines.engine import Compute
    from layers.compute.engines.mxnet.engine import MXNetEngine
    from layers.logic import Logic
    from layers.logic.round.patience import Patience
    from layers.logic.selectors.uniform import Uniform

    rng = np.random.default_rng(1)
    samples = Samples(rng.random((10, 1, 28, 28), np.float32), rng.integers(0, 10, 10))
    compute = Compute(MXNetEngine(two_nn, (1, 28, 28), 10), samples)
    logic = Logic(layout=compute.engine.layout, selector=Uniform(1.0), min_updates=1, seed=1)
    tls = ServerTLS(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    network = RemoteClients(
        Listener("127.0.0.1:0", CODEC, tls=tls), wait_for=clients, patience=Patience(10.0)
    )
    server = Server(network, logic, compute, last_round=1 << 30, evaluate_every=1 << 30)
    attackers = {
        "silent": [clients],
        "flapping": [clients],
        "vanishing": list(range(clients, clients + VANISHING)),
        "fighting": [0],
        "paused": [],
    }[kind]
    processes = []
    with server:
        processes.append(start("honest", server.address, folder, list(range(clients))))
        running = server.rounds()
        rates, lost = [], 0
        try:
            for attacked in (False, True):
                if attacked and attackers:
                    processes.append(start(kind, server.address, folder, attackers))
                if attacked and kind == "paused":
                    pid = os.getpid()
                    later = f"sleep 5; kill -STOP {pid}; sleep {PAUSE_S}; kill -CONT {pid}"
                    processes.append(subprocess.Popen(["sh", "-c", later]))
                began, done = time.monotonic(), 0
                while time.monotonic() - began < seconds:
                    report = next(running).report
                    lost += len(report.of("lost"))
                    done += 1
                rates.append(done / (time.monotonic() - began))
        finally:
            for process in processes:
                process.send_signal(signal.SIGKILL)
                process.wait()
    before, during = rates
    print(
        f"{kind:10} {before:7.2f} {during:7.2f} rounds/s, ratio {during / before:.2f}; "
        f"{lost} tasks lost in {server.state.round} rounds",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        kind, address, folder, clients = json.loads(given.part)
        run_part(kind, address, Path(folder), clients)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_ca(folder)
        make_server_certificate(folder)
        for client in range(given.clients + VANISHING):
            make_client_certificate(folder, f"client-{client}")
        print("            without    with the attack")
        for kind in given.kinds:
            measure(kind, folder, given.clients, given.seconds)


if __name__ == "__main__":
    main()
