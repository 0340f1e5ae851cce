"""Where the time of a simulated round goes, by part; the work of `simulate.py` in one process.

    python benchmarks/profile_round.py [--model lenet5] [--rounds 5]

Shares are of the process's own time under cProfile, which makes Python code look slightly more
expensive than it is.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
from collections import Counter
from pathlib import Path

from fedmx import Experiment, simulate

HERE = Path(__file__).resolve().parent
STEP = ("execution.py", "run")
# The functions of each part, whose time includes the functions that they call, and those of them
# that are another part.
PARTS: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = {
    "forward and backward: MXNet's bound graph": ([STEP], []),
    "the step of SGD": ([("training.py", "step")], []),
    "gathering mini-batches": ([("objective.py", "run"), ("training.py", "shuffled")], [STEP]),
    "the reported loss": ([("training.py", "add"), ("training.py", "means")], []),
    "a client's samples, normalised": ([("data.py", "materialise")], []),
    "messages: encoding and decoding": (
        [("loopback.py", "carried"), ("executor.py", "_received")],
        [],
    ),
    "selecting, folding, concluding": (
        [
            ("cohort.py", "choose_cohort"),
            ("lanes.py", "first"),
            ("collection.py", "on_update"),
            ("round.py", "_conclude"),
        ],
        [],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=["2nn", "lenet5"], default="lenet5")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tree = {
        "rounds": options.rounds + 2,
        "clients": 100,
        "compute": {
            "model": options.model,
            "data": "mnist_shaped:images",
            "normalise": {"scale": 255},
            "train": {"epochs": 5, "batch_size": 10, "learning_rate": 0.04},
            "evaluate": {"every": options.rounds + 2},
        },
        "logic": {"selector": {"name": "uniform", "count": 10}},
    }
    with simulate(
        Experiment.parse(json.dumps(tree), "profile", folder=HERE, modules=None)
    ) as simulation:
        rounds = iter(simulation)
        next(rounds)  # compiles
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(options.rounds):
            next(rounds)
        profile.disable()
    stats = pstats.Stats(profile)
    total_s: float = stats.total_tt  # type: ignore[attr-defined]
    spent: Counter[tuple[str, str]] = Counter()
    for (file, _, name), (_, _, _, cumulative_s, _) in stats.stats.items():  # type: ignore[attr-defined]
        spent[Path(file).name, name] += cumulative_s
    left_s = total_s
    print(
        f"{options.model}, {total_s / options.rounds:.3f} s a round\n\n| part | share |\n|---|--:|"
    )
    for part, (functions, others) in PARTS.items():
        if gone := [name for name in (*functions, *others) if name not in spent]:
            raise SystemExit(f"{part}: no function {gone[0][1]} of {gone[0][0]} was called")
        part_s = sum(spent[one] for one in functions) - sum(spent[one] for one in others)
        left_s -= part_s
        print(f"| {part} | {part_s / total_s:.1%} |")
    print(f"| the rest: loops and calls in Python | {left_s / total_s:.1%} |")


if __name__ == "__main__":
    main()
