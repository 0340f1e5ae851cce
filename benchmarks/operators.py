"""Microseconds per local step by operator: the lower bound of a step's time.

    python benchmarks/operators.py [--model lenet5] [--isa avx2] [--steps 200]

oneDNN times each of its primitives (`DNNL_VERBOSE`). A primitive's time is the lower quartile of
its times in the steps, so that other work on the machine has little effect. The graph's time is
measured in another run without this output: the difference is MXNet's own operators and its calls
of oneDNN. The work is that of `models.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers"), str(HERE.parent)]

from isa import add_option, restricted  # noqa: E402
from models import CASES, MXNET, fedmx_steps  # noqa: E402

WARM_UP = 3
STRETCH = 20
STARTS = "steps start here"
# Below this the resolution of oneDNN's clock shows.
LEAST_US = 0.5


def main() -> None:
    options = _options()
    if options.stage == "primitives":
        take = fedmx_steps(MXNET, options.model)
        take(WARM_UP)
        print(STARTS, flush=True)
        take(options.steps)
        return
    if options.stage == "whole":
        _whole(options.model, options.steps)
        return
    primitives = _primitives(_run("primitives", options).splitlines(), options.steps)
    step_us, graph_us = (float(us) for us in _run("whole", options).splitlines()[-1].split())
    known_us = sum(us for _, us in primitives)
    print(
        f"{options.model}, batch {CASES[options.model].batch}, instruction set {options.isa}, "
        "microseconds a local step\n\n| operator | kernel | of what | us |\n|---|---|---|--:|"
    )
    for (kind, kernel, sizes), us in sorted(primitives, key=lambda one: -one[1]):
        if us >= LEAST_US:
            print(f"| {kind} | {kernel} | {sizes} | {us:.0f} |")
    print(f"| all of oneDNN | | | {known_us:.0f} |")
    print(f"| MXNet's other operators, and its calls | | | {graph_us - known_us:.0f} |")
    print(f"| mini-batches, SGD, the reported loss | | | {step_us - graph_us:.0f} |")
    print(f"| the whole step | | | {step_us:.0f} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=list(CASES), default="lenet5")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--stage", choices=["primitives", "whole"], help=argparse.SUPPRESS)
    add_option(parser)
    return parser.parse_args()


def _run(stage: str, options: argparse.Namespace) -> str:
    environment = {**restricted(os.environ, options.isa), "OMP_NUM_THREADS": "1"}
    environment["DNNL_VERBOSE"] = "1" if stage == "primitives" else "0"
    command = [sys.executable, __file__, "--stage", stage, "--model", options.model]
    command += ["--steps", str(options.steps)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"operators: {options.model} failed")
    return done.stdout


def _whole(model: str, steps: int) -> None:
    """Print the lower quartile of the times of a step, and of its graph, in microseconds."""
    from layers.compute.engines.mxnet.execution import CompiledStep

    graph_s, run = 0.0, CompiledStep.run

    def timed(step: CompiledStep) -> None:
        nonlocal graph_s
        began = time.process_time()
        run(step)
        graph_s += time.process_time() - began

    take = fedmx_steps(MXNET, model)
    take(WARM_UP)
    stretch, seen = min(STRETCH, steps), []
    for timing in (run, timed):
        CompiledStep.run = timing  # type: ignore[method-assign]
        times = []
        for _ in range(max(1, steps // stretch)):
            graph_s, began = 0.0, time.process_time()
            take(stretch)
            took_s = graph_s if timing is timed else time.process_time() - began
            times.append(took_s / stretch * 1e6)
        seen.append(sorted(times)[len(times) // 4])
    print(*seen)


def _primitives(lines: list[str], steps: int) -> list[tuple[tuple[str, str, str], float]]:
    """Return oneDNN's primitives in a step, with their microseconds."""
    times: dict[tuple[str, str, str], list[float]] = {}
    for line in lines[lines.index(STARTS) :]:
        fields = line.split(",")
        if fields[:2] == ["dnnl_verbose", "exec"]:
            _, _, _, kind, kernel, direction, *_, sizes, milliseconds = fields
            name = kind if direction == "undef" else f"{kind}, {direction.replace('_', ' ')}"
            times.setdefault((name, kernel, sizes), []).append(1000 * float(milliseconds))
    return [
        (what, sorted(each)[len(each) // 4] * len(each) / steps) for what, each in times.items()
    ]


if __name__ == "__main__":
    main()
