"""Microseconds per local step of every paper's model, in fedmx and bare PyTorch, side by side.

    python benchmarks/models.py [--isa avx2] [--models lenet5 lstm] [--turns 15] [--seconds 0.5]
    python benchmarks/models.py --engine mxnet torch numpy --models 2nn lenet5

With `--engine`, the sides are engines of fedmx, and the ratio is that to the first one.

Each side runs in a separate process, with one thread, and they take turns (A B A B ...), so that
other work on the machine affects both. A turn is a stretch of local steps of the given length. The
ratio is the median of the ratios of neighbouring turns; the other ratio is that of the minima.
Time is processor time, which for one thread on an idle machine equals wall time.
Both sides take mini-batches, drawn again in each epoch, from samples in memory, and plain SGD;
PyTorch's models are those of `peers/torch_models.py`, in eager mode. `--isa` limits the
instruction set of both. `benchmarks/peers.md` describes PyTorch's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers"), str(HERE.parent)]

from isa import add_option, restricted  # noqa: E402

RATE = 0.01
WORDS, TOKENS = 10_000, 25


class Case(NamedTuple):
    """A model with its paper's mini-batch, and its maximum ratio to PyTorch."""

    batch: int
    shape: tuple[int, ...]
    bar: float
    samples: int = 640


GREY, COLOUR = (1, 28, 28), (3, 32, 32)
CASES = {
    "2nn": Case(10, GREY, 0.45),
    "2nn-mcmahan": Case(10, GREY, 1.0),
    "lenet5": Case(10, GREY, 0.6),
    "cnn3": Case(64, GREY, 0.7),
    "knapsack-cnn": Case(50, GREY, 1.0, samples=650),
    "vgg11s": Case(64, COLOUR, 1.0),
    "resnet18-cifar": Case(32, COLOUR, 1.0),
    "lstm": Case(10, (TOKENS,), 1.0),
}
Take = Callable[[int], None]
PYTORCH = "PyTorch"  # without fedmx
ENGINES = MXNET, TORCH, NUMPY = "mxnet", "torch", "numpy"


def main() -> int:
    options = _options()
    if options.side:
        steps = torch_steps if options.side == PYTORCH else partial(fedmx_steps, options.side)
        _answer(steps, options.models[0])
        return 0
    if options.engine:
        return compare_engines(options)
    print(
        f"Microseconds a local step, one thread, instruction set {options.isa}, "
        f"{options.turns} turns of {options.seconds} s each\n\n"
        "| model | batch | fedmx | PyTorch | fedmx / PyTorch | of the least | at most |\n"
        "|---|--:|--:|--:|--:|--:|--:|",
        flush=True,
    )
    above = []
    for model in options.models:
        ours, theirs = measure(model, options, (MXNET, PYTORCH))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        case = CASES[model]
        if ratio > case.bar:
            above.append(model)
        print(
            f"| {model} | {case.batch} | {statistics.median(ours):,.0f} "
            f"| {statistics.median(theirs):,.0f} | {ratio:.2f} | {min(ours) / min(theirs):.2f} "
            f"| {case.bar:.2f} |",
            flush=True,
        )
    if above:
        print(f"\nAbove the bar: {', '.join(above)}.")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="the length of a turn")
    parser.add_argument(
        "--torch", default="/tmp/peers/torch/bin/python", help="the Python that has PyTorch"
    )
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=[], metavar="ENGINE")
    parser.add_argument("--side", choices=[PYTORCH, *ENGINES], help=argparse.SUPPRESS)
    add_option(parser)
    return parser.parse_args()


def compare_engines(options: argparse.Namespace) -> int:
    """Print the time of a step on each engine, and its ratio to that of the first."""
    first = options.engine[0]
    print(
        f"Microseconds a local step, one thread, instruction set {options.isa}, "
        f"{options.turns} turns of {options.seconds} s each; in brackets the ratio to {first}\n\n"
        f"| model | batch | {' | '.join(options.engine)} |\n"
        f"|---|--:|{'--:|' * len(options.engine)}",
        flush=True,
    )
    for model in options.models:
        turns = measure(model, options, options.engine)
        cells = [f"{statistics.median(turns[0]):,.0f}"]
        for one in turns[1:]:
            ratio = statistics.median(a / b for a, b in zip(one, turns[0], strict=True))
            cells.append(f"{statistics.median(one):,.0f} ({ratio:.2f})")
        print(f"| {model} | {CASES[model].batch} | {' | '.join(cells)} |", flush=True)
    return 0


def measure(model: str, options: argparse.Namespace, names: Sequence[str]) -> list[list[float]]:
    """Return microseconds per step of each turn, of each side."""
    pythons = {MXNET: sys.executable, NUMPY: sys.executable}
    sides = [Side(pythons.get(name, options.torch), name, model, options.isa) for name in names]
    try:
        # Each side takes as many steps as fill a turn of its own.
        steps = [max(1, round(options.seconds * 1e6 / side.take(3))) for side in sides]
        steps = [
            max(1, round(s * options.seconds / (side.take(s) * s / 1e6)))
            for s, side in zip(steps, sides, strict=True)
        ]
        turns = [
            [side.take(s) for s, side in zip(steps, sides, strict=True)]
            for _ in range(options.turns)
        ]
    finally:
        for side in sides:
            side.end()
    return [list(one) for one in zip(*turns, strict=True)]


class Side:
    """A process that takes local steps on request."""

    def __init__(self, python: str, name: str, model: str, isa: str) -> None:
        environment = {**restricted(os.environ, isa), "OMP_NUM_THREADS": "1"}
        command = [python, __file__, "--side", name, "--models", model]
        self._process = subprocess.Popen(
            command,
            env={**environment, "PYTHONPATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._name = f"{model} in {name}"

    def take(self, steps: int) -> float:
        """Take some steps; return microseconds per step."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{steps}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SystemExit(f"models: {self._name} has ended") from None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"models: {self._name} has ended")
        return float(json.loads(line)["us"])

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _answer(prepare: Callable[[str], Take], model: str) -> None:
    """Read a number of steps from each line of input, take them, and print the time per step."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    take = prepare(model)
    take(2)
    for line in sys.stdin:
        steps = int(line)
        began = time.process_time()
        take(steps)
        print(json.dumps({"us": (time.process_time() - began) / steps * 1e6}), file=answers)
        answers.flush()


def fedmx_steps(name: str, model: str) -> Take:
    import numpy as np

    from fedmx.components.engines import engine_of, models_of

    case = CASES[model]
    x, y = data(case)
    dtype = {"example_dtype": str(x.dtype)} if _is_text(case) else {}
    build = models_of(name)[model]
    engine = engine_of(name)(build, case.shape, 2 if _is_text(case) else 10, **dtype)
    samples = SimpleNamespace(x=x, y=np.asarray(y))
    plan = {"epochs": 1, "batch_size": case.batch, "learning_rate": RATE}

    def take(steps: int) -> None:
        rest = SimpleNamespace(**plan, steps=steps, momentum=0.0, weight_decay=0.0)
        engine.train(samples, rest, seed=1)

    return take


def torch_steps(model: str) -> Take:
    import torch
    from torch import nn
    from torch_models import build

    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = CASES[model]
    x, y = (torch.from_numpy(array) for array in data(case))
    net = build(model)
    net.train()
    loss_of: nn.Module = nn.CrossEntropyLoss()
    if _is_text(case):
        x, y, loss_of = x.long(), y.float(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def take(steps: int) -> None:
        while steps > 0:
            for rows in torch.randperm(case.samples).split(case.batch)[:steps]:
                optimizer.zero_grad()
                loss_of(net(x[rows]), y[rows]).backward()
                optimizer.step()
                steps -= 1

    return take


def data(case: Case):  # type: ignore[no-untyped-def]  # numpy is another one on each side
    """Return random samples, from a seed: the time of a step does not depend on their content."""
    import numpy as np

    rng = np.random.default_rng(1)
    if _is_text(case):
        tokens = rng.integers(0, WORDS, (case.samples, *case.shape))
        return tokens.astype(np.int32), rng.integers(0, 2, case.samples)
    images = rng.random((case.samples, *case.shape), dtype=np.float32)
    return images, rng.integers(0, 10, case.samples)


def _is_text(case: Case) -> bool:
    return len(case.shape) == 1


if __name__ == "__main__":
    sys.exit(main())
