"""A server under load: a thousand clients over mutual TLS on real sockets, and a kill -9 half way.

    python benchmarks/load.py [--clients 1000] [--rounds 10] [--no-kill] [--set KEY=VALUE ...]

A server with a model of 1.01 MB, and light clients, which answer every task with an update of
the model's size without training. Each has its own certificate, connection and session; they share
a few processes with one thread each. After half of the rounds the server is killed, and
`fedmx resume` continues. The benchmark prints seconds per round, the outcomes of the updates, the
server's peak memory (VmHWM of both processes), and the seconds from the kill until every client is
ready again.

Until the kill the rounds alternate with rounds of a bare asyncio server (`bare_server.py`), which
sends and receives the same bytes to and from as many of the same clients. So other work on the
machine affects both equally. Of both it prints the medians of the seconds, and of
the processor seconds of the server and of all clients, and the ratio of each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from fedmx.protocol.messages import CODEC, Finished, Ready, Setup
from layers.logic import Task, Update
from layers.network import (
    ClientTLS,
    Limits,
    make_ca,
    make_client_certificate,
    make_server_certificate,
)
from layers.network.address import Address
from layers.network.connection import Connection, new_scratch
from layers.network.events import Arrived, Ended, SessionEvent
from layers.network.handshake import ClientSession

MIB = 2**20
SAMPLES = 10
LIMIT_S = 840
LINGER_S = 5.0
BARE = Path(__file__).with_name("bare_server.py")
HIDDEN = [256, 196]  # 253,302 parameters on digits (28 x 28): 1.01 MB


class LightClient:
    """Answers every task of a server until the run is over, and prints a line for what happens.

    All clients of a process share one thread. With a thread for each, they would mostly wait for
    each other, and take the time of the server.
    """

    def __init__(self, number: int, address: str, folder: Path, scratch: memoryview) -> None:
        self.number = number
        self.name = f"client-{number}"
        self.address = Address.parse(address)
        self.context = ClientTLS(
            folder / f"{self.name}.pem", folder / f"{self.name}.key", folder / "ca.pem"
        ).context()
        self.scratch = scratch
        self.over = False

    async def run(self) -> None:
        """Take part, and connect again until the run is over."""
        loop = asyncio.get_running_loop()
        while not self.over:
            with suppress(OSError):  # the server was killed
                _, connection = await loop.create_connection(
                    lambda: Connection(self.session, self, self.scratch, LINGER_S),
                    self.address.host,
                    self.address.port,
                    ssl=self.context,
                    ssl_handshake_timeout=LIMIT_S,
                )
                await connection.closed
            if not self.over:
                await asyncio.sleep(random.uniform(0.5, 2.0))

    def session(self, transport: asyncio.Transport) -> ClientSession:
        now, limits = asyncio.get_running_loop().time(), Limits(handshake_s=LIMIT_S)
        return ClientSession(self.name, CODEC, now, limits=limits, certified=True)

    def happened(self, connection: Connection, event: SessionEvent) -> None:
        match event:
            case Arrived(message=Setup(run=run, client=client)):
                connection.send(CODEC.encode(Ready(run, client, SAMPLES, ())))
                say(self.number, "ready")
            case Arrived(message=Task() as task):
                connection.send(CODEC.encode(update_of(task)))
            case Arrived(message=Finished()):
                say(self.number, "finished")
                self.over = True
                connection.finish("done", True)
            case Ended(reason=reason, final=True) if not self.over:
                say(self.number, f"gave up: {reason}")
                self.over = True

    def made(self, connection: Connection) -> None: ...

    def report_message(self, connection: Connection, kind: type, message: object) -> None: ...

    def unreadable(self, connection: Connection, stream: int, reason: str) -> None: ...

    def gone(self, connection: Connection) -> None: ...

    def must_pause(self, connection: Connection) -> bool:
        return False


def update_of(task: Task) -> Update:
    delta = np.full(task.weights.size, 1e-5 * (task.client + 1), np.float32)
    return Update(task.round, task.client, SAMPLES, 1, delta, task.buffers.copy(), {"loss": 1.0})


def say(number: int, what: str) -> None:
    os.write(1, f"{json.dumps([number, what])}\n".encode())  # at once, whole lines


async def run_clients(first: int, last: int, address: str, folder: Path) -> None:
    scratch = new_scratch()
    clients = [LightClient(number, address, folder, scratch) for number in range(first, last)]
    await asyncio.gather(*(client.run() for client in clients))


class Crowd:
    """All client processes, and the lines of their clients with times."""

    def __init__(self, clients: int, processes: int, address: str, folder: Path) -> None:
        self.said: list[tuple[float, int, str]] = []
        self._processes = []
        for place in range(processes):
            first, last = (clients * part // processes for part in (place, place + 1))
            command = [sys.executable, __file__, "--address", address, "--folder", str(folder)]
            command += ["--first", str(first), "--last", str(last)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()
            self._processes.append(process)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            number, what = json.loads(line)
            self.said.append((time.monotonic(), number, what))

    def since(self, moment: float, what: str) -> dict[int, float]:
        """Return when each client first said `what` after a moment."""
        found: dict[int, float] = {}
        for at, number, words in list(self.said):
            if at >= moment and words == what:
                found.setdefault(number, at)
        return found

    @property
    def cpu_s(self) -> float:
        """The processor seconds of all clients."""
        return sum(cpu_s(process.pid) for process in self._processes)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def cpu_s(pid: int) -> float:
    """Return the processor seconds of a process, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve_in_turns(path: Path, overrides: list[str]) -> None:
    """Serve an experiment like `fedmx server`; after each round print its costs, and wait."""
    # Not at the top: the clients need neither this nor MXNet.
    from fedmx import Experiment, RunFolder, recorded, serve
    from fedmx.assembly.assembly import Assembly
    from fedmx.deployment.serve import relax_gc
    from fedmx.run import gather_facts

    experiment = Experiment.read(path, overrides)
    assembly = Assembly(experiment)
    run = uuid.uuid4().hex
    server = serve(assembly, run)
    facts = gather_facts(
        seed=experiment.seed,
        mode="server",
        digest=experiment.digest(),
        engine=experiment.compute.engine,
        **assembly.facts(),
        run=run,
        address=server.address,
    )
    text = experiment.to_yaml()
    folder = RunFolder.create(experiment.run.folder, experiment.name, text, facts)
    print(server.weights.size, flush=True)
    relax_gc()
    began = time.perf_counter(), time.process_time()
    for _ in recorded(server, folder):
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        print(json.dumps(took), flush=True)
        sys.stdin.readline()
        began = time.perf_counter(), time.process_time()


class ServerProcess:
    """A server in a process, that does a round for each line; its peak memory is read meanwhile."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.peak_bytes = 0
        self._log = open(folder / "server.log", "ab")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
            text=True,
        )

    def next_line(self) -> str:
        """Wait for the next line that the server prints."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            said = Path(self._log.name).read_text(errors="replace").splitlines()[-5:]
            raise EOFError("\n".join(["the server has ended:", *said]))
        self.look()
        return line.strip()

    def go_on(self) -> None:
        """Begin the next round."""
        if self.process.stdin:
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def look(self) -> bool:
        """Read the peak of the memory; return whether the server still runs."""
        try:
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    self.peak_bytes = int(line.split()[1]) * 1024
        except OSError:
            pass
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._log.close()


@dataclass
class Costs:
    """What the rounds of a server took: seconds, and processor seconds of it and its clients."""

    server: ServerProcess
    crowd: Crowd
    seconds: list[float] = field(default_factory=list)
    server_cpu_s: list[float] = field(default_factory=list)
    clients_cpu_s: list[float] = field(default_factory=list)

    def round(self) -> None:
        """Let the server do a round, and note its costs."""
        before_s = self.crowd.cpu_s
        self.server.go_on()
        seconds, server_cpu_s = json.loads(self.server.next_line())
        self.seconds.append(seconds)
        self.server_cpu_s.append(server_cpu_s)
        self.clients_cpu_s.append(self.crowd.cpu_s - before_s)

    def medians(self) -> dict[str, float]:
        return {
            name: round(statistics.median(getattr(self, name)), 2)
            for name in ("seconds", "server_cpu_s", "clients_cpu_s")
        }


def experiment(folder: Path, rounds: int, clients: int) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    names = {"ca": "ca.pem", "certificate": "server.pem", "key": "server.key"}
    tree = {
        "name": "load",
        "rounds": rounds,
        "clients": clients,
        "compute": {
            "model": {"name": "2nn", "hidden": HIDDEN},
            "data": "digits",
            "normalise": {"scale": 16},
            "train": {"steps": 1},
            "evaluate": {"every": rounds},
        },
        "logic": {"selector": {"name": "uniform", "fraction": 1.0}},
        "network": {
            "address": f"127.0.0.1:{port}",
            "tls": {key: str(folder / name) for key, name in names.items()},
        },
        "run": {"folder": str(folder / "runs")},
    }
    path = folder / "load.yaml"
    path.write_text(json.dumps(tree))
    return path


def records(folder: Path, name: str) -> Iterator[dict]:
    for path in (folder / "runs").glob(f"*/{name}.jsonl"):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)


@contextmanager
def certificates(clients: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fedmx-load-") as name:
        folder = Path(name)
        make_ca(folder)
        make_server_certificate(folder)
        for number in range(clients):
            make_client_certificate(folder, f"client-{number}")
        yield folder


def measure(
    clients: int, rounds: int, processes: int, kill: bool, overrides: list[str]
) -> dict[str, object]:
    with certificates(clients) as folder:
        path = experiment(folder, rounds, clients)
        address = json.loads(path.read_text())["network"]["address"]
        options = [word for override in overrides for word in ("--set", override)]
        servers = [ServerProcess([__file__, "--serve", str(path), *options], folder)]
        parameters = servers[0].next_line()
        bare_options = ["--clients", str(clients), "--parameters", parameters]
        bare_options += ["--folder", str(folder)]
        bare = ServerProcess([str(BARE), *bare_options], folder)
        begun = time.monotonic()
        limit = threading.Timer(LIMIT_S, lambda: [one.kill() for one in (*servers, bare)])
        limit.start()
        crowd = Crowd(clients, processes, address, folder)
        others = Crowd(clients, processes, bare.next_line(), folder)
        ours, theirs = Costs(servers[0], crowd), Costs(bare, others)
        killed: float | None = None
        code: int | None = None
        try:
            servers[0].next_line()  # the first round, in which the clients connect
            bare.next_line()
            for _ in range((rounds // 2 if kill else rounds) - 1):
                theirs.round()
                ours.round()
            servers[0].go_on()
            bare.kill()
            others.end()
            if kill:
                time.sleep(0.2)
                servers[0].kill()
                killed = time.monotonic()
                (run,) = (folder / "runs").iterdir()
                servers.append(ServerProcess(["-m", "fedmx", "resume", str(run)], folder))
            while servers[-1].look():
                time.sleep(0.2)
            code = servers[-1].process.poll()
            time.sleep(2.0)  # what the clients said last is on its way
        except EOFError as error:
            print(f"{error}; its log:\n{(folder / 'server.log').read_text()[-2000:]}")
        finally:
            limit.cancel()
            for server in (*servers, bare):
                server.kill()
            crowd.end()
            others.end()
        if code != 0:
            print((folder / "server.log").read_text()[-2000:], file=sys.stderr)
        ready = crowd.since(begun, "ready")
        back = {} if killed is None else crowd.since(killed, "ready")
        fates = Counter(one["status"] for one in records(folder, "clients"))
        seconds = [round(one["seconds"], 2) for one in records(folder, "rounds")]
        received = sum(one["up_bytes"] for one in records(folder, "rounds"))
        fedmx_took, bare_took = ours.medians(), theirs.medians()
        return {
            "clients": clients,
            "server ended with code": code,
            "rounds": len(seconds),
            "seconds a round": seconds,
            "fedmx, medians": fedmx_took,
            "bare asyncio, medians": bare_took,
            "ratios": {key: round(fedmx_took[key] / bare_took[key], 2) for key in bare_took},
            "updates": dict(fates),
            "MB of an update": round(received / max(fates["accepted"], 1) / 1e6, 2),
            "clients that gave up": sum("gave up" in what for _, _, what in crowd.said),
            "seconds until all were ready": round(max(ready.values()) - begun, 1)
            if ready
            else None,
            "ready again after the kill": len(back),
            "seconds until all were back": round(max(back.values()) - killed, 1) if back else None,
            "server peak MiB": [round(server.peak_bytes / MIB, 1) for server in servers],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=8, help="that the clients share")
    parser.add_argument("--no-kill", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="as of `fedmx server`")
    for hidden in ("--serve", "--address", "--folder", "--first", "--last"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.serve:
        serve_in_turns(Path(given.serve), given.set)
    elif given.address:
        numbers = int(given.first), int(given.last)
        asyncio.run(run_clients(*numbers, given.address, Path(given.folder)))
    else:
        found = measure(given.clients, given.rounds, given.processes, not given.no_kill, given.set)
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
