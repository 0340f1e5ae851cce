"""The work of every contender, its data, and the clock that measures it.

Imported by the scripts beside it, each in its own environment, so it needs only numpy.
The figures are those of `benchmarks/peers.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import numpy as np

CLIENTS, IMAGES, CLASSES = 100, 600, 10
COHORT = 10
EPOCHS, BATCH, RATE = 5, 10, 0.04
PARAMETERS = {"2nn": 109_386, "lenet5": 61_706}


def client_data(client: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a client's images (600, 28, 28) in [0, 1], float32, and labels (600,), int64.

    Random, from a seed: the time of a step does not depend on the images.
    """
    rng = np.random.default_rng(client)
    images = rng.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8)
    return images.astype(np.float32) / 255, rng.integers(0, CLASSES, IMAGES)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options of all contenders."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--model", choices=sorted(PARAMETERS), default="2nn")
    parser.add_argument("--rounds", type=int, default=5, help="measured, after the first")
    return parser


class Clock:
    """The ends of a run's rounds, as seconds since this process started.

    The first round is the warm-up: it has start-up and compilation in it. A later round takes from
    the end of the one before it to its own end, so that nothing between two rounds is left out.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds + 1
        self._ends_s: list[float] = []

    def tick(self) -> None:
        """Record that a round has ended and its new global weights are available."""
        self._ends_s.append(_process_age_s())

    def report(self, peer: str, version: str, model: str, parameters: int) -> None:
        """Print the run as a line of JSON; refuse one with a different amount of work."""
        if parameters != PARAMETERS[model]:
            raise SystemExit(
                f"{peer}: {model} has {parameters} parameters, not {PARAMETERS[model]}"
            )
        if len(self._ends_s) != self.rounds:
            raise SystemExit(f"{peer}: {len(self._ends_s)} rounds ended, not {self.rounds}")
        rounds_s = [b - a for a, b in zip(self._ends_s, self._ends_s[1:])]  # noqa: B905
        line = {
            "peer": peer,
            "version": version,
            "model": model,
            "parameters": parameters,
            "round_s": round(statistics.median(rounds_s), 4),
            "least_round_s": round(min(rounds_s), 4),
            "rounds_s": [round(seconds, 4) for seconds in rounds_s],
            "startup_s": round(self._ends_s[0], 3),
        }
        print(json.dumps(line), flush=True)


def _process_age_s() -> float:
    with open("/proc/self/stat") as file:
        started_ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
