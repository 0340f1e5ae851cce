"""The quickstart: simulates an experiment, deploys it over TLS and compares the two models.

    python examples/quickstart.py [FOLDER]

writes certificates, the clients' logs and both runs to FOLDER (default: runs/quickstart).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fedmx import Experiment

FILE = Path(__file__).with_name("quickstart.yaml")
FEDMX = [sys.executable, "-m", "fedmx"]


def main(folder: Path, overrides: tuple[str, ...] = ()) -> int:
    if find_spec("mxnet") is None:
        print("MXNet is not installed here, so the engine is numpy (docs/engines.md)")
        overrides = ("compute.engine=numpy", *overrides)
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
    command += ["--listen", "127.0.0.1:0", *tls(certs, "server"), "--log-format", "text"]
    logs = folder / "logs"
    logs.mkdir()
    processes = [started(command, logs / "server.log")]
    try:
        output = printed(logs, processes)
        address = next((line for line in output if line.startswith("listening on ")), "").split()
        if not address:
            return processes[0].wait()
        command = [*FEDMX, "clients", str(clients), address[2], "--certs", str(certs)]
        print(f"{clients} client processes start; each imports MXNet", flush=True)
        processes.append(started([*command, "--folder", str(logs)], logs / "clients.log"))
        for _ in output:
            pass
        codes = [process.wait(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.terminate()

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


def printed(logs: Path, processes: list[subprocess.Popen[bytes]]) -> Iterator[str]:
    """Print and yield what the server, the first of the processes, writes until it ends."""
    server, text = processes[0], ""
    with (logs / "server.log").open() as file:
        while True:
            ended = server.poll() is not None  # before reading, so that no last line is missed
            *lines, text = (text + file.read()).split("\n")
            for line in lines:
                print(line, flush=True)
                yield line
            if any(one.poll() for one in processes[1:]):
                raise SystemExit((logs / "clients.log").read_text())
            if ended:
                return
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart")))
