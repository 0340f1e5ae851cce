"""Start-up time of commands, and of a first round, beside the import of typer and pydantic.

    python benchmarks/startup.py [--times N] [--round]

Each command starts N times, in turns with the others, and the shortest time counts. `--round` adds
the first round of LeNet-5 with two worker processes, which takes seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = ("-c", "import typer, pydantic")
WRONG = "rounds: 1\nclients: 2\ncompute: {model: lenet6, data: digits}\n"
FIRST_ROUND = """\
rounds: 1
clients: 10
compute:
  model: lenet5
  data: digits
  normalise: {scale: 16}
  train: {epochs: 1, batch_size: 10, learning_rate: 0.05}
logic: {selector: {name: uniform, count: 10}}
executor: {processes: 2}
"""


def seconds(arguments: tuple[str, ...], folder: str) -> float:
    """Return the duration of a Python process, from its start to its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.perf_counter() - begin


def main() -> None:
    """Print the shortest time of each command, and its ratio to the first one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=10, metavar="N")
    parser.add_argument("--round", action="store_true", help="also a first round")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "wrong.yaml").write_text(WRONG, encoding="utf-8")
        Path(folder, "first.yaml").write_text(FIRST_ROUND, encoding="utf-8")
        commands = {
            "import typer, pydantic": BASE,
            "fedmx --help": ("-m", "fedmx", "--help"),
            "fedmx rnu": ("-m", "fedmx", "rnu"),
            "fedmx list": ("-m", "fedmx", "list"),
            "fedmx list models": ("-m", "fedmx", "list", "models"),
            "fedmx run, wrong model": ("-m", "fedmx", "run", "wrong.yaml"),
            "import mxnet": ("-c", "import mxnet"),
            "import the engine": ("-c", "import layers.compute.engines.mxnet.engine"),
        }
        if given.round:
            commands["a first round"] = ("-m", "fedmx", "run", "first.yaml")
        times: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(given.times + 1):
            for name, arguments in commands.items():
                took = seconds(arguments, folder)
                if turn:  # the first turn only fills the disk's cache
                    times[name].append(took)
    base = min(times["import typer, pydantic"])
    for name, all_of_them in times.items():
        least = min(all_of_them)
        print(f"{name:24} {least * 1e3:7.0f} ms  {least / base:6.2f} times")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
