"""A virtual hour of a simulation: peak memory by the number of clients, and seconds per round.

    python benchmarks/virtual_hour.py [--clients 100 1000 10000]

100 clients per round train a 2NN on 20 random images of 28 x 28 each, 5 epochs in batches of 10. An
hour of their devices is about 30 rounds; four fifths of the clients are available at a time, and
one in 20 drops out. Each number of clients runs in a separate process. Peak memory is the kernel's
(VmHWM), minus the memory of the process with data, model and clients before the first round. The
server keeps only the last accepted round of each client, since the clients of FedAvg have no
memory. Peak memory must not grow with the number of clients.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fedmx import Assembly, Experiment, simulate

COHORT, IMAGES, HOUR_S = 100, 20, 3600.0
CLIENTS = (100, 1_000, 10_000)
MIB = 1 << 20


def images(clients: int) -> dict[str, np.ndarray]:
    """Return random images and labels for all clients."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (clients * IMAGES, 1, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, clients * IMAGES)
    return {"x_train": x, "y_train": y, "x_test": x[:100], "y_test": np.arange(100) % 10}


def memory_bytes(field: str) -> int:
    """Return a field of /proc/self/status, VmRSS or VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status; this benchmark needs Linux")


def measure(clients: int) -> None:
    """Run the hour, and print a line."""
    experiment = Experiment(
        rounds=1000,
        clients=clients,
        stop={"clock_s": HOUR_S},
        compute={
            "model": "2nn",
            "data": lambda: images(clients),
            "normalise": {"scale": 255},
            "train": {"epochs": 5, "batch_size": 10, "learning_rate": 0.04},
            "evaluate": {"every": 10},
        },
        logic={"selector": {"name": "uniform", "count": COHORT}},
        clock={
            "deadline_s": 120,
            "devices": {"name": "range", "samples_per_s": [1, 10], "up_bytes_per_s": [1e4, 1e5]},
            "availability": {"name": "chance", "share": 0.8},
            "dropout": 0.05,
        },
    )
    assembly = Assembly(experiment)
    simulation = simulate(assembly)
    data = assembly.data.dataset.train.x.nbytes + assembly.data.dataset.train.y.nbytes
    with simulation:
        held = memory_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # that peak came from making the images
        began = time.perf_counter()
        rounds = sum(1 for _ in simulation)
        wall_s = time.perf_counter() - began
    above = memory_bytes("VmHWM") - held
    print(
        f"{clients:>8,} {rounds:>7} {simulation.clock_s:>10.0f} {wall_s / rounds:>13.3f} "
        f"{data / MIB:>9.1f} {held / MIB:>9.1f} {above / MIB:>10.1f}"
    )


def main() -> None:
    """Measure each number of clients in a separate process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(*options.clients)
        return
    print(" clients  rounds  virtual s  wall s/round  data MiB  held MiB  above MiB", flush=True)
    for clients in options.clients:
        subprocess.run([sys.executable, __file__, "--here", "--clients", str(clients)], check=True)


if __name__ == "__main__":
    main()
