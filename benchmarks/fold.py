"""A round's fold from disk beside the fold in memory: the same bits, and the memory it takes.

    python benchmarks/fold.py [--limit 64] [--times 4] [--clients 8] [--rules mean median ...]

The model has `--times` as many bytes as the limit (`run.fold_memory_mb`), and every client sends an
update of that size. Each fold runs in a separate process. For the fold from disk, the process
limits its own memory (RLIMIT_DATA: allocated memory, touched or not), so that allocations beyond
the limit fail. The limit allows, in addition to the memory before:

- the global model, float32, which exists before the fold,
- the result: the aggregator's total (float64 sums for most) and the new model,
- the update that has just arrived,
- the limit for slices of all updates together,
- 16 MB for Python itself.

Peak memory is the peak allocation of numpy and Python from the first update on (`tracemalloc`),
without the global model. `result` is that of a fold of one update, without this update.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from layers.logic import AGGREGATORS, Logic, ServerState, Update
from layers.logic.core.declaration import Trait
from layers.logic.core.messages import EMPTY
from layers.logic.core.round import PlannedLane
from layers.logic.round.lanes import Fold, Lane
from layers.logic.round.pipeline import ServerPipeline
from layers.logic.storage import UpdateStore

MB = 1_000_000
SPARE = 16 * MB
RULES = [
    name
    for name, make in AGGREGATORS.items()
    if Trait.BY_SLICES in make().provides and name != "by-group"  # folds each group by another rule
]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=int, default=64, help="run.fold_memory_mb")
    parser.add_argument("--times", type=int, default=4, help="size of the model in limits")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES, metavar="RULE")
    parser.add_argument("--folder", default=None, help="where updates wait; default: as tempfile")
    parser.add_argument("--one", nargs=3, metavar=("RULE", "HOW", "DATA"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(fold(options, *options.one)))
        return 0
    model = options.limit * options.times
    print(
        f"model {model} MB, limit {options.limit} MB, {options.clients} updates of together "
        f"{model * options.clients:,} MB; in MB:\n\n"
        "| rule | result | peak in memory | peak from disk | beyond result and one update "
        "| s in memory | s from disk | same bits |\n|---|--:|--:|--:|--:|--:|--:|---|"
    )
    right = True
    for rule in options.rules:
        least = run(options, rule, "one")
        result = least["peak"] - model * MB
        there = run(options, rule, "memory")
        # The model, the result, one update, the slices.
        allowed = 2 * model * MB + result + options.limit * MB + SPARE
        disk = run(options, rule, "disk", allowed)
        beyond = disk["peak"] - result - model * MB
        same = disk["sha256"] == there["sha256"]
        right = right and same and beyond <= options.limit * MB
        print(
            f"| {rule} | {result / MB:,.0f} | {there['peak'] / MB:,.0f} | {disk['peak'] / MB:,.0f} "
            f"| {beyond / MB:,.0f} | {there['seconds']:.1f} | {disk['seconds']:.1f} "
            f"| {'yes' if same else 'NO'} |",
            flush=True,
        )
    return 0 if right else 1


def run(options: argparse.Namespace, rule: str, how: str, data: int = 0) -> dict:
    command = [sys.executable, __file__, "--one", rule, how, str(data)]
    for name in ("limit", "times", "clients"):
        command += [f"--{name}", str(getattr(options, name))]
    if options.folder:
        command += ["--folder", options.folder]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        raise SystemExit(f"{rule}, {how}: {said.stderr.strip().splitlines()[-1]}")
    return json.loads(said.stdout)


def fold(options: argparse.Namespace, rule: str, how: str, data: str) -> dict:
    """Fold the updates of a round as the server does when they arrive."""
    size = options.limit * options.times * MB // 4
    number = 1 if how == "one" else options.clients
    if int(data):
        resource.setrlimit(resource.RLIMIT_DATA, (held_bytes() + int(data),) * 2)
    state = ServerState(0, np.zeros(size, np.float32), EMPTY)
    folder = None if options.folder is None else Path(options.folder)
    store = UpdateStore(options.limit * MB, folder) if how == "disk" else None
    lanes = [Lane(k, 1, PlannedLane((k,)), state.weights, state.buffers) for k in range(number)]
    logic = Logic(layout=[], aggregator=AGGREGATORS[rule]())
    pipeline = ServerPipeline(logic, state, number)
    gc.collect()
    began = time.perf_counter()
    tracemalloc.start()
    folding = Fold(lanes, state, logic, pipeline, store=store)
    for k in range(number):
        lanes[k].add(Update(1, k, 10 + k, 5, drawn(size, k), EMPTY, {"loss": 1 / (1 + k)}))
        lanes[k].ended = True
        folding.keep(lanes[k])
        folding.advance()
    after = folding.finish(state)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    seconds = time.perf_counter() - began
    digest = hashlib.sha256(after.weights.data).hexdigest()
    return {"peak": peak, "seconds": seconds, "sha256": digest}


def drawn(size: int, k: int) -> np.ndarray:
    """Return the update of client k; drawn in place, to take no extra memory."""
    rng = np.random.default_rng(k)
    update = np.empty(size, np.float32)
    rng.standard_normal(dtype=np.float32, out=update)
    return update


def held_bytes() -> int:
    """Return the current memory that counts towards RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmData in /proc/self/status")


if __name__ == "__main__":
    sys.exit(main())
