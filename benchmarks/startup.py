"""Start-up time of commands, and of a first round, beside the import of typer and pydantic.

    python benchmarks/startup.py [--times N] [--runs] [--against CHECKOUT]

Each command starts N times, in turns with the others, and the shortest time counts. `--runs` adds
those that train, which take seconds: a first round, a sweep and the quickstart. `--against` runs
the same commands of another checkout in between, on this Python, and prints the ratios to it.
"""

from __future__ import annotations

import argparse
import os
import resource
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
  model: 2nn
  data: digits
  normalise: {scale: 16}
  train: {epochs: 1, batch_size: 10, learning_rate: 0.05}
logic: {selector: {name: uniform, count: 10}}
"""
RUN = ("-m", "fedmx", "run", "first.yaml")
RATES = "compute.train.learning_rate=0.05,0.1"
EIGHT = ("first.yaml", "--set", "rounds=2", "--seeds", "4", "--vary", RATES)
SWEEP = ("-m", "fedmx", "sweep", *EIGHT)


def seconds(arguments: tuple[str, ...], folder: str, root: Path) -> tuple[float, float]:
    """Return the duration of a Python process, and the processor time of it and its children."""
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    wall, now = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def main() -> None:
    """Print the shortest time of each command, its processor time, and the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=10, metavar="N")
    parser.add_argument("--runs", action="store_true", help="also commands that train")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout")
    given = parser.parse_args()
    roots = [ROOT, *filter(None, [given.against])]
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
            "import mxnet": ("-c", "import fedmx, mxnet"),
            "import the engine": ("-c", "import layers.compute.engines.mxnet.engine"),
        }
        if given.runs:
            commands |= {"one round of 2NN": RUN, "a sweep of 8 runs": SWEEP, "the quickstart": ()}
        times: dict[tuple[str, Path], list[tuple[float, float]]] = {}
        for turn in range(given.times + 1):
            for name, arguments in commands.items():
                for root in roots:
                    words = arguments or (str(root / "examples" / "quickstart.py"), "quick")
                    took = seconds(words, folder, root)
                    if turn:  # the first turn only fills the disk's cache
                        times.setdefault((name, root), []).append(took)
    base = min(wall for wall, _ in times["import typer, pydantic", ROOT])
    for name in commands:
        least = [min(times[name, root]) for root in roots]
        (wall, cpu), *others = least
        text = (
            f"{name:24} {wall * 1e3:7.0f} ms  {wall / base:6.2f} times  {cpu:6.2f} s of processor"
        )
        for other_wall, other_cpu in others:
            text += f"  {wall / other_wall:5.2f} and {cpu / other_cpu:5.2f} of {other_wall:.2f} s,"
            text += f" {other_cpu:.2f} s"
        print(text)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
