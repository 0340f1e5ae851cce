"""Run seeds: `python -m tests.network_simulation --seeds 0:300`, or one with `--trace`."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter

from tests.network_simulation.outcome import share_of_rate, simulated
from tests.network_simulation.plan import DRAWN, troubled
from tests.network_simulation.planted import PLANTED


def main() -> int:
    """Run seeds; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.network_simulation")
    parser.add_argument("--seeds", default="0:300", metavar="FIRST:LAST", help="or one seed")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--digests", action="store_true", help="print the SHA-256 of each trace")
    parser.add_argument(
        "--plant", choices=PLANTED, help="plant a bug; stop at the first seed that fails"
    )
    parser.add_argument(
        "--troubles",
        nargs="?",
        const="any",
        choices=("any", *DRAWN),
        help="let others than the honest clients trouble the rounds, and measure their rate",
    )
    given = parser.parse_args()
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    failed, counts, began_s = 0, Counter[str](), time.monotonic()
    with PLANTED[given.plant]() if given.plant else contextlib.nullcontext():
        for seed in seeds:
            if given.troubles:
                plan = troubled(seed, None if given.troubles == "any" else given.troubles)
                outcome, share = share_of_rate(seed, plan, verbose=given.trace)
                print(f"seed {seed}: {share:.2f} of the rate, {plan.troubles}", flush=True)
            else:
                outcome = simulated(seed, verbose=given.trace)
            counts.update(runs=1, steps=outcome.steps, kills=outcome.kills)
            counts.update(virtual_s=int(outcome.seconds_s), faults=len(outcome.plan.faults))
            for line in outcome.lines:
                print(line)
            if given.digests:
                print(seed, outcome.trace, flush=True)
            if counts["runs"] % 100 == 0 and not given.digests:
                print(f"... {counts['runs']} seeds, {failed} failed", flush=True)
            if outcome.wrong:
                failed += 1
                print(f"seed {seed} fails: {outcome.plan.experiment}")
                for wrong in outcome.wrong[:10]:
                    print(f"  {wrong}")
                more = f" --plant {given.plant}" if given.plant else ""
                more += f" --troubles '{given.troubles}'" if given.troubles else ""
                command = f"python -m tests.network_simulation --seeds {seed} --trace{more}"
                print(f"  reproduce: {command}", flush=True)
                if given.plant:
                    break
    if not given.digests:
        took_s = time.monotonic() - began_s
        print(
            f"{counts['runs']} seeds, {failed} failed, in {took_s:.0f} s: {counts['faults']} "
            f"faults, {counts['kills']} processes killed, {counts['virtual_s'] / 3600:.1f} "
            f"virtual hours, {counts['steps']:,} steps"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
