"""Coverage of a sweep's intervals: simulated cells and pairs of arms with known true values.

    python benchmarks/intervals.py [--seeds 5 6 8 10 20] [--cells 4000]

For each number of seeds and each distribution, the benchmark computes intervals of many simulated
cells and counts how many contain the true value. It should be 95 %. The two arms of a pair share
the effect of the seed, which is half of each one's variance.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from fedmx.report.statistics import (
    Values,
    bootstrap_interval,
    interquartile_mean,
    mean_interval,
)

Draw = Callable[[np.random.Generator, tuple[int, int]], Values]
DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed (beta 18, 2)": lambda rng, shape: rng.beta(18, 2, size=shape),
    "heavy tails (t, 4)": lambda rng, shape: rng.standard_t(4, size=shape),
    "one in five collapses": lambda rng, shape: (
        rng.normal(size=shape) - 3 * (rng.random(shape) < 0.2)
    ),
}
BATCH = 250  # cells at once, for the memory


def held(name: str, seeds: int, cells: int) -> dict[str, float]:
    """Return the share of the cells and of the pairs whose interval contains the true value."""
    draw, rng = DISTRIBUTIONS[name], np.random.default_rng([1, seeds])
    large = draw(np.random.default_rng(0), (1, 4_000_000))
    counts = dict.fromkeys(("median", "IQM", "difference"), 0)
    for _ in range(0, cells, BATCH):
        values = draw(rng, (BATCH, seeds))
        for label, statistic in (("median", np.median), ("IQM", interquartile_mean)):
            low, high = bootstrap_interval(values, statistic)
            truth = statistic(large, axis=-1)[0]
            counts[label] += int(((low <= truth) & (truth <= high)).sum())
        shared = draw(rng, (BATCH, seeds))
        one, two = (shared + draw(rng, (BATCH, seeds)) for _ in range(2))
        low, high = mean_interval(one - two)
        counts["difference"] += int(((low <= 0) & (high >= 0)).sum())
    return {label: count / cells for label, count in counts.items()}


def main() -> None:
    """Print a line for each number of seeds and distribution."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7, 8, 9, 10, 15, 20, 30])
    parser.add_argument("--cells", type=int, default=4000)
    options = parser.parse_args()
    cells = -(-options.cells // BATCH) * BATCH
    print(f"{'seeds':>5}  {'values':<22} {'median':>7} {'IQM':>7} {'difference':>11}")
    for seeds in options.seeds:
        for name in DISTRIBUTIONS:
            found = held(name, seeds, cells)
            print(
                f"{seeds:>5}  {name:<22} {100 * found['median']:>6.1f}% {100 * found['IQM']:>6.1f}%"
                f" {100 * found['difference']:>10.1f}%",
                flush=True,
            )


if __name__ == "__main__":
    main()
