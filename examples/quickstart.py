"""The quickstart: one experiment simulated, then between processes over TLS, and compared.

    python examples/quickstart.py [FOLDER]

makes the folder (default: runs/quickstart) anew with the certificates and both runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fedmx import Experiment, RunFolder

FILE = Path(__file__).with_name("quickstart.yaml")
FEDMX = [sys.executable, "-m", "fedmx"]


def main(folder: Path, overrides: tuple[str, ...] = ()) -> int:
    given = [word for value in overrides for word in ("--set", value)]
    clients = Experiment.read(FILE, overrides).clients

    print(f"1. {FILE.name} in simulation, {clients} clients in this process")
    simulated = folder / "simulated"
    fedmx("run", str(FILE), *given, "--set", f"run.folder={simulated}")

    print(f"\n2. the same between a server and {clients} client processes over mutual TLS")
    certs = folder / f"certs-{len(list(folder.glob('certs-*')))}"
    fedmx("certs", "all", str(certs), "--clients", str(clients), quiet=True)
    deployed = folder / "deployed"
    command = [*FEDMX, "server", str(FILE), *given, "--set", f"run.folder={deployed}"]
    command += ["--listen", "127.0.0.1:0", *tls(certs, "server")]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    workers = []
    try:
        address = wait_for_address(server)
        for number in range(clients):
            command = [*FEDMX, "client", address, "--partition", f"{number}/{clients}"]
            command += tls(certs, f"client-{number}")
            workers.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
        assert server.stderr is not None
        for line in server.stderr:
            sys.stderr.write(line)
        codes = [server.wait(), *(worker.wait() for worker in workers)]
    finally:
        for process in (server, *workers):
            process.kill()

    models = [newest(simulated).model_path, newest(deployed).model_path]
    same = models[0].read_bytes() == models[1].read_bytes()
    verdict = "the same, bit for bit" if same else "NOT the same"
    print(f"\nThe final models of simulation and deployment are {verdict}:")
    for model in models:
        print(f"  {model}")
    return 0 if same and not any(codes) else 1


def fedmx(*words: str, quiet: bool = False) -> None:
    subprocess.run([*FEDMX, *words], check=True, stdout=subprocess.DEVNULL if quiet else None)


def tls(certs: Path, name: str) -> list[str]:
    files = {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}
    return [word for option, file in files.items() for word in (f"--{option}", str(certs / file))]


def wait_for_address(server: subprocess.Popen[str]) -> str:
    """Read what the server says until it names the address that it listens on."""
    assert server.stderr is not None
    for line in server.stderr:
        sys.stderr.write(line)
        if line.startswith("listening on "):
            return line.split()[2]
    raise SystemExit(f"the server ended with code {server.wait()}")


def newest(folder: Path) -> RunFolder:
    return RunFolder.open(max(folder.iterdir(), key=lambda path: path.stat().st_mtime))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart")))
