"""A federation of five sites on this machine, and three jobs for it.

    python examples/federation/run.py [FOLDER]

writes everything to FOLDER (default: runs/federation). The sites are processes that connect over
mutual TLS. Each has a policy of its own: trier allows its own data alone, so it refuses two jobs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FEDMX = [sys.executable, "-m", "fedmx"]
SITES = ("aachen", "bonn", "jena", "trier", "ulm")
JOBS = ("by_site", "compressed", "private")


def main(folder: Path) -> int:
    folder = folder / time.strftime("%Y%m%d-%H%M%S")
    certs = folder / "certs"
    for words in (["ca"], ["server"], ["crl"], ["site", *SITES], ["operator"]):
        command = [*FEDMX, "certs", words[0], str(certs), *words[1:]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    server = ["federation", "serve", str(folder / "federation"), "--listen", "127.0.0.1:0"]
    processes = [started(folder / "server.log", *server, "--certs", str(certs))]
    try:
        address = listening(folder / "server.log", processes[0])
        print(f"the federation listens on {address}", flush=True)
        for name in SITES:
            words = ["client", address, "--stay", "--ca", f"{certs}/ca.pem"]
            words += ["--cert", f"{certs}/{name}.pem", "--key", f"{certs}/{name}.key"]
            words += ["--memory", str(folder / name), "--policy", str(policy(folder / name))]
            processes.append(started(folder / f"{name}.log", *words))
        to = ["--to", address, "--certs", str(certs)]
        codes = []
        for number, job in enumerate(JOBS, 1):
            print(f"\njob {number}: {job}.yaml", flush=True)
            submit = [*FEDMX, "submit", str(HERE / f"{job}.yaml"), *to, "--follow"]
            codes.append(subprocess.call(submit))
            fetch = [*FEDMX, "fetch", f"{number:06}", str(folder / job), *to]
            codes.append(subprocess.call(fetch))
        print(flush=True)
        codes.append(subprocess.call([*FEDMX, "jobs", *to]))
        return int(any(codes))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def policy(folder: Path) -> Path:
    """Write a site's table and its policy; return the policy."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(SITES.index(folder.name))
    area, age = draw.uniform(30, 200, 120), draw.uniform(0, 90, 120)
    rooms = np.maximum(1, np.round(area / 28 + draw.normal(0, 0.8, 120)))
    price = 2.2 * area + 9 * rooms - 0.8 * age + draw.normal(0, 12, 120)
    rows = np.column_stack([area, rooms, age, price])
    head = "area,rooms,age,price"
    np.savetxt(folder / "houses.csv", rows, "%.1f", ",", header=head, comments="")
    others = "" if folder.name == "trier" else ", digits: null"
    path = folder / "policy.yaml"
    path.write_text(f"data: {{houses: ./houses.csv{others}}}\nrounds: 50\njob_seconds: 600\n")
    return path


def started(log: Path, *words: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([*FEDMX, *words], stdout=file, stderr=subprocess.STDOUT)


def listening(log: Path, server: subprocess.Popen[bytes]) -> str:
    """Return the server's address, once it listens."""
    while server.poll() is None:
        for line in log.read_text().splitlines():
            if "listening on " in line:
                return line.split()[-1]
        time.sleep(0.05)
    raise SystemExit(log.read_text())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/federation")))
