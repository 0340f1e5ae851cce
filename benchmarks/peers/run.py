"""fedmx beside its peers: one after the other, each in its own environment.

    python benchmarks/peers/run.py [--repeats 3] [--only fedmx flower] [--model lenet5] [--isa avx2]

Prints a table in Markdown. `benchmarks/peers.md` describes the environments. Needs only
Python, on Linux; memory is the sampled proportional set size of all processes of a contender.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from family import Family
from isa import add_option, restricted

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TIMEOUT_S = 300
ROUNDS = {"2nn": 10, "lenet5": 5}


# XLA's older releases end at a flag that they do not know; this one is the nearest that they have.
OLD_XLA = {"fedjax-0.4.30": "--xla_cpu_prefer_vector_width=256"}


class Contender(NamedTuple):
    """A way to do the work: whose it is, in which environment, by which script and options."""

    family: str
    environment: str
    script: str
    options: tuple[str, ...] = ()


FEDMX = Contender("fedmx", "", "../simulate.py", ("--executor", "processes:2", "--json"))
CONTENDERS = {
    "fedmx": FEDMX,
    "flower": Contender("flower", "flower", "with_flower.py"),
    "flower-loader": Contender("flower", "flower", "with_flower.py", ("--loader",)),
    "pfl-1": Contender("pfl", "pfl", "with_pfl.py", ("--processes", "1")),
    "pfl-2": Contender("pfl", "pfl", "with_pfl.py", ("--processes", "2")),
    "fedjax": Contender("fedjax", "fedjax", "with_fedjax.py"),
    "fedjax-0.4.30": Contender("fedjax", "fedjax-0.4.30", "with_fedjax.py"),
    "fluke-1": Contender("fluke", "fluke", "with_fluke.py", ("--threads", "1")),
    "fluke-2": Contender("fluke", "fluke", "with_fluke.py", ("--threads", "2")),
    "torch-1": Contender("torch", "torch", "bare_torch.py", ("--threads", "1")),
    "torch-2": Contender("torch", "torch", "bare_torch.py", ("--threads", "2")),
}


class Failed(Exception):
    """A contender could not be run, or did not report its measurements."""


def main() -> int:
    options = _options()
    runs: dict[tuple[str, str], list[dict]] = {}
    complaints: list[str] = []
    for repeat in range(options.repeats):
        for model in options.model:
            turn = repeat % len(options.only)
            for name in options.only[turn:] + options.only[:turn]:
                began, load = time.monotonic(), _wait_for_quiet(options.quiet_s)
                try:
                    line = measure(name, model, options)
                except Failed as reason:
                    complaints.append(f"{name}, {model}: {reason}")
                    print(complaints[-1], file=sys.stderr, flush=True)
                    continue
                line = {
                    "contender": name,
                    "isa": options.isa,
                    "repeat": repeat,
                    "load": load,
                    **line,
                }
                runs.setdefault((model, name), []).append(line)
                if options.json:
                    with open(options.json, "a") as file:
                        file.write(json.dumps(line) + "\n")
                took_s = time.monotonic() - began
                print(
                    f"{repeat + 1}/{options.repeats} {model:7} {name:14} "
                    f"{line['round_s']:7.3f} s a round, {took_s:.0f} s in all, "
                    f"others used {load:.0%} of the machine before",
                    file=sys.stderr,
                    flush=True,
                )
    print(f"Instruction set: {options.isa}.\n")
    print(table(runs, options.model, options.only))
    return 1 if complaints else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1)
    names = list(CONTENDERS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CONTENDER")
    parser.add_argument("--model", nargs="+", choices=list(ROUNDS), default=list(ROUNDS))
    parser.add_argument("--environments", type=Path, default=Path("/tmp/peers"))
    parser.add_argument("--python", default=sys.executable, help="the one that has fedmx")
    parser.add_argument(
        "--quiet-s", type=float, default=0, help="wait so long for other work to end, each time"
    )
    add_option(parser)
    parser.add_argument("--json", help="a file to which every run is added, as a line of JSON")
    return parser.parse_args()


def _wait_for_quiet(longest_s: float) -> float:
    """Return the share of this machine's cores that others use; wait while it is above 5%."""
    deadline = time.monotonic() + longest_s
    while True:
        busy, total = _processor_ticks()
        time.sleep(1)
        busy_after, total_after = _processor_ticks()
        share = (busy_after - busy) / max(1, total_after - total)
        if share <= 0.05 or time.monotonic() > deadline:
            return round(share, 2)


def _processor_ticks() -> tuple[int, int]:
    with open("/proc/stat") as file:
        ticks = [int(one) for one in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def measure(name: str, model: str, options: argparse.Namespace) -> dict:
    """Run a contender once and return what it says of itself, with its peak memory.

    Raises:
        Failed: it has no environment or script, ended badly, took too long or said nothing.
    """
    contender = CONTENDERS[name]
    script = (HERE / contender.script).resolve()
    python = Path(options.python)
    if contender is not FEDMX:
        python = options.environments / contender.environment / "bin" / "python"
    for path in (python, script):
        if not path.exists():
            raise Failed(f"{path} does not exist; benchmarks/peers.md says how it is made")
    command = [str(python), str(script), "--model", model, *contender.options]
    command += ["--rounds", str(ROUNDS[model])]
    # The caller's own settings must not affect a contender's number of threads.
    kept = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment = restricted(kept, options.isa)
    if "XLA_FLAGS" in environment and contender.environment in OLD_XLA:
        environment["XLA_FLAGS"] = OLD_XLA[contender.environment]
    environment["PYTHONPATH"] = str(ROOT if contender is FEDMX else HERE)
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        environment["RAY_TMPDIR"] = folder  # Ray hangs at the session of a killed run
        family = Family(command, environment)
        try:
            code = family.wait(TIMEOUT_S)
        finally:
            family.end()
    if code is None:
        raise Failed(f"took longer than {TIMEOUT_S} s and was ended")
    if code:
        said = [line.strip() for line in family.output().splitlines() if line.strip()]
        raise Failed(f"ended with {code}: {said[-1] if said else 'it said nothing'}")
    return {**_last_json(family.output()), "peak_mb": round(family.peak_bytes / 1e6)}


def _last_json(output: str) -> dict[str, Any]:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                found: dict[str, Any] = json.loads(line)
                missing = {"round_s", "least_round_s", "startup_s", "version"} - found.keys()
                if missing:
                    raise Failed(f"its line of JSON has no {', '.join(sorted(missing))}")
                return found
    raise Failed("printed no line of JSON")


def table(runs: dict[tuple[str, str], list[dict]], models: list[str], names: list[str]) -> str:
    """Return the runs as Markdown; a ratio is the median of those within one repeat."""
    rows = [
        "| model | contender | version | s a round | least | fedmx / it | start-up s | peak MB |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for model in models:
        ours = {line["repeat"]: line for line in runs.get((model, "fedmx"), [])}
        for name in names:
            lines = runs.get((model, name))
            if not lines:
                continue
            ratios = [
                ours[line["repeat"]]["round_s"] / line["round_s"]
                for line in lines
                if line["repeat"] in ours
            ]
            middle = {
                key: statistics.median(line[key] for line in lines)
                for key in ("round_s", "startup_s", "peak_mb")
            }
            rows.append(
                f"| {model} | {name} | {lines[0]['version']} | {middle['round_s']:.3f} "
                f"| {min(line['least_round_s'] for line in lines):.3f} "
                f"| {f'{statistics.median(ratios):.2f}' if ratios else '-'} "
                f"| {middle['startup_s']:.1f} | {middle['peak_mb']:.0f} |"
            )
    load = max((line["load"] for lines in runs.values() for line in lines), default=0)
    note = f"Before a contender began, others used at most {load:.0%} of the machine's cores."
    return "\n".join([*rows, "", note, "", *_against_the_fastest(runs, models)])


def _against_the_fastest(runs: dict[tuple[str, str], list[dict]], models: list[str]) -> list[str]:
    """Return, for each model and peer, fedmx against the fastest way in which that peer was run."""
    found = []
    for model in models:
        medians = {
            name: statistics.median(line["round_s"] for line in runs[model, name])
            for name in CONTENDERS
            if (model, name) in runs
        }
        if "fedmx" not in medians:
            continue
        for family in dict.fromkeys(one.family for one in CONTENDERS.values()):
            ways = [name for name in medians if CONTENDERS[name].family == family != "fedmx"]
            if ways:
                best = min(ways, key=medians.__getitem__)
                ratio = medians["fedmx"] / medians[best]
                found.append(f"- {model}: fedmx / {family} (as {best}): {ratio:.2f}")
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that contenders end too
    sys.exit(main())
