"""Compare interpretations of the devices in the knapsack paper's section 4 with its table 3.

    python experiments/knapsack_channel.py [--draws 200]

FedCS has no threshold and selects only by times, so no training is needed: the number of clients
(of 20) that it selects depends on the speeds, on the channel and on one constant, D / (gamma B).
The same applies to OfflineKP-FL if all norms are equal, as they nearly are with IID data. For each
interpretation of the speeds and the channel, the script takes the constant that fits the paper's
counts of both best, by the mean square. For OnlineKP-FL with equal normalised norms, it then takes
the best-fitting L0 and U of a grid.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from layers.logic import Offer, OpenRound, Verdict
from layers.logic.algorithms.fedcs import FedCS
from layers.logic.algorithms.knapsack import LARGEST, OnlineKP

CLIENTS = 20
DEADLINES = (1000.0, 1500.0, 2000.0)
PAPER = np.array([[8.8, 14.2, 17.0], [9.2, 12.0, 13.8]])  # FedCS, OfflineKP-FL
PAPER_ONLINE = np.array([2.8, 4.8, 6.3])
L0S = (0.002, 0.004, 0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.03)
US = (0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.4, 5.0)
UNITS_S = np.arange(40.0, 401.0, 10.0)
WORK = 5.0 * 50.0  # c M

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
SPEEDS: dict[str, Draw] = {
    "f uniform in 1 to 9": lambda rng, shape: rng.uniform(1, 9, shape),
    "f uniform in 3 to 7": lambda rng, shape: rng.uniform(3, 7, shape),
    "f normal, 5 and 1": lambda rng, shape: rng.normal(5, 1, shape).clip(0.5),
    "f exponential, 5": lambda rng, shape: rng.exponential(5, shape).clip(0.5),
}
CHANNELS: dict[str, Draw] = {
    "power exponential, mean 1": lambda rng, shape: rng.exponential(1, shape),
    "power exponential, mean 2": lambda rng, shape: rng.exponential(2, shape),
    "power exponential, mean 10": lambda rng, shape: rng.exponential(10, shape),
    "amplitude for power, Rayleigh, scale 1": lambda rng, shape: rng.rayleigh(1, shape),
    "amplitude for power, Rayleigh, mean power 1": lambda rng, shape: rng.rayleigh(0.5**0.5, shape),
    "power of a real normal amplitude, mean 1": lambda rng, shape: rng.normal(0, 1, shape) ** 2,
    "no fading, SNR 1": lambda rng, shape: np.ones(shape),
}


def main() -> None:
    """Print a line for each interpretation, the best one first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=200, help="rounds a reading")
    options = parser.parse_args()
    lines = sorted(_readings(options.draws))
    print(
        "| speeds | channel | D / (gamma B), s | FedCS | OfflineKP-FL | root of the mean square | "
        "OnlineKP-FL | its root |"
    )
    print("|---|---|--:|---|---|--:|---|--:|")
    for error, speeds, channel, unit_s, fedcs, offline in lines:
        numbers = " | ".join(map(_text, (fedcs, offline)))
        apart, lowest, highest, online = _nearest_online(speeds, channel, unit_s, options.draws)
        print(
            f"| {speeds} | {channel} | {unit_s:.0f} | {numbers} | {error:.2f} | {_text(online)} "
            f"(L0 {lowest:g}, U {highest:g}) | {apart:.2f} |",
            flush=True,
        )


Line = tuple[float, str, str, float, list[float], list[float]]


def _text(counts: list[float]) -> str:
    return ", ".join(f"{one:.1f}" for one in counts)


def _nearest_online(
    speeds: str, channel: str, unit_s: float, draws: int
) -> tuple[float, float, float, list[float]]:
    """Return OnlineKP-FL's distance from the paper's counts, its L0, its U, and its counts."""
    train_s, per_unit = _drawn(speeds, channel, draws)
    tried = []
    for lowest in L0S:
        for highest in US:
            if lowest <= highest:
                selector = OnlineKP(lowest, highest, value="normalised")
                counts = _counts(partial(_online, selector), train_s, unit_s * per_unit)
                error = float(np.sqrt(np.mean((counts - PAPER_ONLINE) ** 2)))
                tried.append((error, lowest, highest, counts.tolist()))
    return min(tried)


def _drawn(speeds: str, channel: str, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how long clients train, in s, and upload, in D / (gamma B), both (draws, clients)."""
    rng = np.random.default_rng(1)
    train_s = WORK / SPEEDS[speeds](rng, (draws, CLIENTS))
    return train_s, 1 / np.log2(1 + CHANNELS[channel](rng, (draws, CLIENTS)))


def _readings(draws: int) -> Iterator[Line]:
    for speeds in SPEEDS:
        for channel in CHANNELS:
            train_s, per_unit = _drawn(speeds, channel, draws)
            tried = []
            for unit_s in UNITS_S:
                counts = [_counts(one, train_s, unit_s * per_unit) for one in (_fedcs, _offline)]
                error = float(np.sqrt(np.mean((np.array(counts) - PAPER) ** 2)))
                tried.append((error, speeds, channel, unit_s, *map(list, counts)))
            yield min(tried)


Select = Callable[[np.ndarray, np.ndarray, float], int]


def _counts(select: Select, train_s: np.ndarray, upload_s: np.ndarray) -> np.ndarray:
    """Return the mean number of clients selected, a value a deadline."""
    rows = list(zip(train_s, upload_s, strict=True))
    return np.array([np.mean([select(*row, deadline) for row in rows]) for deadline in DEADLINES])


def _fedcs(train_s: np.ndarray, upload_s: np.ndarray, deadline_s: float) -> int:
    answers = {
        client: {"train_s": float(train_s[client]), "upload_s": float(upload_s[client])}
        for client in range(CLIENTS)
    }
    sizes = dict.fromkeys(range(CLIENTS), 600)
    round = OpenRound(sizes, deadline_s=deadline_s)
    steps = FedCS().run(round)
    next(steps)  # asks for the times
    steps.send(answers)
    return len(round.planned)


def _offline(train_s: np.ndarray, upload_s: np.ndarray, deadline_s: float) -> int:
    """Return how many clients algorithm 1 grants if all norms are equal."""
    order = np.lexsort((np.arange(CLIENTS), train_s))
    best = 0
    for arrived in range(1, CLIENTS + 1):
        known = order[:arrived]
        room_s = deadline_s - train_s[known].max()
        fit = int((np.cumsum(np.sort(upload_s[known])) <= room_s).sum())
        if fit < best:
            break
        best = fit
    return best


def _online(
    selector: OnlineKP, train_s: np.ndarray, upload_s: np.ndarray, deadline_s: float
) -> int:
    """Return how many clients algorithm 2 grants if all norms are equal and normalised."""
    offers = [
        Offer(2, client, 600, 1.0, float(upload_s[client]), at_s=float(train_s[client]))
        for client in np.flatnonzero(train_s < deadline_s).tolist()
    ]
    samples = dict.fromkeys(range(CLIENTS), 600)
    round = OpenRound(samples, number=2, deadline_s=deadline_s, memory={LARGEST: 1.0})
    verdicts: list[Verdict] = []
    round.answer = verdicts.append
    steps = replace(selector, ask_times=False).run(round)
    next(steps)
    for offer in sorted(offers, key=lambda offer: (offer.at_s, offer.client)):
        steps.send(offer)
    return sum(verdict.granted for verdict in verdicts)


if __name__ == "__main__":
    main()
