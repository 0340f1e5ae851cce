"""The quickstart: one experiment simulated, then between processes over TLS, and compared.

    python examples/quickstart.py [FOLDER]

puts certificates, the clients' logs and both runs into FOLDER (default: runs/quickstart).
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from fedmx import Experiment

FILE = Path(__file__).with_name("quickstart.yaml")
FEDMX = [sys.executable, "-m", "fedmx"]


def main(folder: Path, overrides: tuple[str, ...] = ()) -> int:
    given = [word for value in overrides for word in ("--set", value)]
    clients = Experiment.read(FILE, overrides).clients
    folder = folder / time.strftime("%Y%m%d-%H%M%S")
    simulated, deployed, certs = folder / "simulated", folder / "deployed", folder / "certs"

    print(f"1. {FILE.name} in simulation, {clients} clients in this process", flush=True)
    command = [*FEDMX, "run", str(FILE), *given, "--set", f"run.folder={simulated}"]
    if code := subprocess.call(command):
        return code

    print(
        f"\n2. the same between a server and {clients} client processes over mutual TLS", flush=True
    )
    command = [*FEDMX, "certs", "all", str(certs), "--clients", str(clients)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    command = [*FEDMX, "server", str(FILE), *given, "--set", f"run.folder={deployed}"]
    command += ["--listen", "127.0.0.1:0", *tls(certs, "server")]
    logs = folder / "logs"
    logs.mkdir()
    processes = [started(command, logs / "server.log")]
    try:
        address = follow(logs / "server.log", processes, until="listening on ").split()[2]
        for number in range(clients):
            command = [*FEDMX, "client", address, "--partition", f"{number}/{clients}"]
            command += [*tls(certs, f"client-{number}"), "--memory", str(folder / "memory")]
            processes.append(started(command, logs / f"client-{number}.log"))
        follow(logs / "server.log", processes)
        codes = [process.wait(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()

    models = sorted(folder.glob("*/*/model.safetensors"))
    same = len(models) == 2 and models[0].read_bytes() == models[1].read_bytes()
    print(f"\nThe final models are {'the same, bit for bit' if same else 'NOT the same'}:")
    for model in models:
        print(f"  {model}")
    return 0 if same and not any(codes) else 1


def started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def tls(certs: Path, name: str) -> list[str]:
    files = {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}
    return [word for option, file in files.items() for word in (f"--{option}", str(certs / file))]


def follow(log: Path, processes: list[subprocess.Popen[bytes]], until: str | None = None) -> str:
    """Print what the server writes, up to a line that begins with `until`, or to its end."""
    server, *clients = processes
    with log.open() as file:
        text = ""
        while True:
            ended = server.poll() is not None  # before reading, so that no last line is missed
            *lines, text = (text + file.read()).split("\n")
            for line in lines:
                print(line, flush=True)
                if until and line.startswith(until):
                    return line
            failed = [number for number, client in enumerate(clients) if client.poll()]
            if failed:
                raise SystemExit(
                    f"client {failed[0]} failed: see {log.parent}/client-{failed[0]}.log"
                )
            if ended and until:
                raise SystemExit("the server ended before it listened")
            if ended:
                return ""
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart")))
