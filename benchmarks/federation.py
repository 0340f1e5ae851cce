"""A standing federation: many sites and jobs, and a server that is killed at any moment.

    python benchmarks/federation.py [--sites N] [--jobs N] [--rounds N]
    python benchmarks/federation.py --kills N [--seed N]

The first form prints for each job the seconds from submit to its first round and to its end, and
the memory of the server and of all sites. The second kills the server by SIGKILL at random moments,
while it takes jobs, runs them and sends their run folders, and checks that each accepted job ends
in the bits of a run of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fedmx import Experiment, RunFolder, simulate
from fedmx.errors import FedmxError
from fedmx.federation.operator import Operator
from fedmx.journal.chain import model_hash
from layers.network import ClientTLS, NetworkError, make_ca, make_client_certificate
from layers.network import make_server_certificate as make_server

EXPERIMENT = """\
name: one
rounds: {rounds}
seed: {seed}
clients: {clients}
compute:
  engine: numpy
  model: logistic
  data: digits
  normalise: {{scale: 16}}
  train: {{epochs: 1, batch_size: 10, learning_rate: 0.05}}
logic: {{selector: {{name: uniform, fraction: 1.0}}}}
"""
FEDMX = [sys.executable, "-m", "fedmx"]
PATIENCE_S = 900.0


class Standing:
    """A federation in a folder, and its sites, all in one process group each."""

    def __init__(self, folder: Path, sites: int) -> None:
        self.folder, self.pki, self.address = folder, folder / "pki", "127.0.0.1:0"
        make_ca(self.pki)
        make_server(self.pki)
        make_client_certificate(self.pki, "operator", role="operator")
        for number in range(sites):
            make_client_certificate(self.pki, f"client-{number}")
        self.server: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """Start the server; another time at the same address."""
        log = self.folder / "server.log"
        before = log.read_text().count("listening on ") if log.exists() else 0
        words = ["federation", "serve", "fed", "--listen", self.address, "--certs", "pki"]
        self.server = self.started(log, *words)
        while (text := log.read_text()).count("listening on ") <= before:
            time.sleep(0.02)
        self.address = text.rpartition("listening on ")[2].split()[0]

    def started(self, log: Path, *words: str) -> subprocess.Popen[bytes]:
        """Start a command in the folder."""
        with log.open("ab") as file:
            return subprocess.Popen(
                [*FEDMX, *words], cwd=self.folder, stdout=file, stderr=subprocess.STDOUT
            )

    @contextlib.contextmanager
    def operator(self) -> Iterator[Operator]:
        """Connect as the operator, again and again until the server is there."""
        own, key = self.pki / "operator.pem", self.pki / "operator.key"
        received = self.folder / "received"
        received.mkdir(exist_ok=True)
        with Operator(self.address, ClientTLS(own, key, self.pki / "ca.pem"), received) as found:
            yield found


def resident_mib(pids: list[int]) -> float:
    """Return the memory of processes that they do not share, in MiB."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(one.split()[1]) for one in lines if one.startswith("Private"))
    return total / 1024


def children(pid: int) -> list[int]:
    """Return a process and all that it started."""
    found = [pid]
    for one in found:
        for path in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, path.read_text().split())
    return found


def many(sites: int, jobs: int, rounds: int) -> None:
    """Print what many jobs at many sites take."""
    with tempfile.TemporaryDirectory() as temporary:
        standing = Standing(Path(temporary), sites)
        standing.serve()
        assert standing.server is not None
        words = ["clients", str(sites), standing.address, "--certs", "pki", "--stay"]
        clients = standing.started(standing.folder / "clients.log", *words, "--folder", "sites")
        try:
            with standing.operator() as operator:
                began = time.monotonic()
                while sum(bool(one["address"]) for one in operator.order("sites")) < sites:
                    time.sleep(0.2)
                print(f"{sites} sites joined in {time.monotonic() - began:.1f} s", flush=True)
                for number in range(jobs):
                    began = time.monotonic()
                    text = EXPERIMENT.format(rounds=rounds, seed=number, clients=sites)
                    job = operator.submit(text)
                    first = 0.0
                    for line in operator.follow(job):
                        if "round 1/" in line and not first:
                            first = time.monotonic() - began
                    took = time.monotonic() - began
                    server = resident_mib([standing.server.pid])
                    all_sites = resident_mib(children(clients.pid))
                    print(
                        f"job {job}: round 1 after {first:.1f} s, over after {took:.1f} s; server "
                        f"{server:.1f} MiB, sites {all_sites:.0f} MiB",
                        flush=True,
                    )
        finally:
            for process in (standing.server, clients):
                process.terminate()
                process.wait()


def alone(seed: int, rounds: int) -> list[str]:
    """Return the hashes of the models of a job that runs by itself."""
    text = EXPERIMENT.format(rounds=rounds, seed=seed, clients=2)
    with simulate(Experiment.parse(text, "experiment")) as simulation:
        states = [simulation.state for _ in simulation]
    return [model_hash(one.weights, one.buffers) for one in states]


def killed(kills: int, seed: int) -> None:
    """Kill the server at random moments; print what was lost."""
    draw, rounds = random.Random(seed), 3
    with tempfile.TemporaryDirectory() as temporary:
        standing = Standing(Path(temporary), 2)
        standing.serve()
        assert standing.server is not None
        words = ["clients", "2", standing.address, "--certs", "pki", "--stay"]
        clients = standing.started(standing.folder / "clients.log", *words, "--folder", "sites")
        accepted: dict[str, int] = {}
        fetched = 0
        try:
            for number in range(kills):
                ends = time.monotonic() + draw.uniform(0.0, 3.0)
                with contextlib.suppress(FedmxError, NetworkError), standing.operator() as operator:
                    while time.monotonic() < ends:
                        newest = operator.order("jobs")["jobs"]
                        if sum(one["state"] == "queued" for one in newest) < 2:
                            text = EXPERIMENT.format(rounds=rounds, seed=len(accepted), clients=2)
                            accepted[operator.submit(text)] = len(accepted)
                        time.sleep(draw.uniform(0.0, 0.3))
                        if ends - time.monotonic() < 0.5:
                            standing.server.send_signal(signal.SIGKILL)
                standing.server.kill()
                standing.server.wait()
                standing.serve()
                if (number + 1) % 20 == 0:
                    print(f"{number + 1} kills, {len(accepted)} accepted jobs", flush=True)
            lost, other = [], []
            with standing.operator() as operator:
                for job, one in accepted.items():
                    ends = time.monotonic() + PATIENCE_S
                    while (state := _state(operator, job)) not in ("done", "failed"):
                        if time.monotonic() > ends:
                            break
                        time.sleep(0.2)
                    if state != "done":
                        lost.append((job, state))
                        continue
                    run = operator.fetch(job, standing.folder / job, standing.folder / "received")
                    fetched += 1
                    found = [each["model_sha256"] for each in RunFolder.open(run).rounds()]
                    if found != alone(one, rounds):
                        other.append(job)
            print(
                f"{kills} kills: {len(accepted)} accepted jobs, lost {lost}, other bits {other}, "
                f"fetched {fetched}"
            )
        finally:
            for process in (standing.server, clients):
                process.terminate()
                process.wait()


def _state(operator: Operator, job: str) -> str:
    return str(operator.order("job", job)["state"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sites", type=int, default=200, metavar="N")
    parser.add_argument("--jobs", type=int, default=20, metavar="N")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--kills", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    given = parser.parse_args()
    if given.kills:
        killed(given.kills, given.seed)
    else:
        many(given.sites, given.jobs, given.rounds)


if __name__ == "__main__":
    main()
