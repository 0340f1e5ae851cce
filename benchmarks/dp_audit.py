"""An audit of central privacy: empirical lower bounds of epsilon beside the claimed one.

    python benchmarks/dp_audit.py [--rounds 3000] [--fault noise|clip|sampling]

Two attacks see what is published: the models.

* Canaries in one run (Andrew et al. 2023): some clients send directions of their own. Epsilon is
  that of the two normal distributions which fit the last model's products with these directions,
  and with others that nobody sent. It is an estimate.
* Rounds as trials: all clients but one send the same update, and that one, if it is there, the
  opposite. A threshold from one half of the rounds tells runs with it from runs without; the other
  half gives a lower bound with 95 % confidence (Clopper and Pearson).

Each row has a planted fault, or none. A row whose lower bound is above the claim shows a fault.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import beta, norm

from fedmx import Assembly, Experiment
from fedmx.privacy.accounting import epsilon_of
from fedmx.simulation.executors.executor import SerialExecutor
from fedmx.simulation.simulated_clients import SimulatedClients
from layers.logic import Contribution, Logic, OpenRound, ServerState, run_round
from layers.logic.core.attack import Attack
from layers.logic.core.hook import ClientContext
from layers.logic.core.privacy import Mechanism
from layers.logic.privacy.central import PrivateMean, on_grid
from layers.logic.seeds import generator
from layers.logic.selectors.poisson import Poisson
from layers.logic.selectors.uniform import Uniform

FAULTS = ("none", "noise", "clip", "sampling")
CLIP, PROBABILITY, NOISE = 0.5, 0.1, 1.0
CANARIES, NOBODYS, HONEST, ROUNDS = 500, 5000, 50, 50
FEW, DELTA, DELTA_OF_ROUND = 20, 1e-3, 5e-3
DELTA_OF_CANARIES = 0.01  # the tails of two fitted distributions say little
EXCESS = 20.0  # how much longer than the clip a canary is
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Canaries(Attack):
    """Each liar sends a direction of its own, far longer than the clip."""

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the canary of a client."""
        assert context.client is not None
        return (direction(context.client, delta.size) * CLIP * EXCESS).astype(np.float32)


@dataclass(frozen=True)
class Opposite(Attack):
    """Client 0 sends one direction, all others the opposite one."""

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the update of a client."""
        length = CLIP * EXCESS if context.client == 0 else -CLIP
        return (direction(0, delta.size) * length).astype(np.float32)


@dataclass(frozen=True)
class Unclipped(PrivateMean):
    """A private mean that forgot to clip."""

    def add(self, total, contribution: Contribution):  # type: ignore[no-untyped-def]
        """Add one update as it came."""
        total.whole += on_grid(contribution.delta, 1e9, total.step)
        return total


@dataclass(frozen=True)
class FixedSize(Poisson):
    """A cohort of a fixed size that is called Poisson sampling, which fedmx could not see."""

    def select(self, round: OpenRound) -> Iterable[int]:
        """Draw the number of clients that Poisson sampling draws on average."""
        clients = round.sizes.ids
        number = int(self.probability * clients.size + 0.5)
        return Uniform().draw(round, number)


def direction(number: int, size: int) -> np.ndarray:
    """Return a unit vector, float64 (size,)."""
    drawn = generator(0, "canary", number).normal(size=size)
    return np.asarray(drawn / np.linalg.norm(drawn))


def assembly_of(clients: int, model: str, steps: int, seed: int) -> Assembly:
    """Return the parts of a private experiment."""
    return Assembly(
        Experiment(
            seed=seed,
            rounds=1,
            clients=clients,
            compute={
                "model": model,
                "data": "digits",
                "normalise": {"scale": 16},
                "train": {"steps": steps, "batch_size": 10},
            },
            privacy={"name": "central", "clip": CLIP, "delta": DELTA, "noise": NOISE},
            logic={
                "preset": {"name": "fedavg", "weights": "uniform"},
                "selector": {"name": "poisson", "probability": PROBABILITY},
                "min_updates": 0,
            },
        )
    )


def logic_of(assembly: Assembly, attack: Attack, fault: str) -> Logic:
    """Return the private logic with an attack, and with a fault that its claim does not know."""
    logic = assembly.server_logic
    mean = logic.aggregator
    assert isinstance(mean, PrivateMean)
    if fault == "noise":
        mean = replace(mean, noise=NOISE / 10)
    elif fault == "clip":
        mean = Unclipped(mean.clip, mean.noise, mean.probability, mean.clients)
    selector = logic.selector
    if fault == "sampling":
        selector = FixedSize(PROBABILITY)
    hooks = (*logic.hooks, attack)
    return replace(logic, aggregator=mean, selector=selector, hooks=hooks)


def steps_of(
    assembly: Assembly, logic: Logic, clients: Sequence[int], rounds: int
) -> list[np.ndarray]:
    """Return the change of the model in each round, in units of the clip in the sum."""
    engine = assembly.engine
    sizes = assembly.sizes()
    executor = SerialExecutor(logic, engine, assembly.samples_of)
    state = ServerState(0, *engine.initial(assembly.experiment.seed))
    scale = PROBABILITY * assembly.experiment.clients / CLIP
    steps = []
    with SimulatedClients(executor, {one: sizes[one] for one in clients}) as carrier:
        for _ in range(rounds):
            before = state.weights.astype(np.float64)
            state, _ = run_round(state, carrier, logic)
            steps.append((state.weights - before) * scale)
    return steps


def of_canaries(fault: str) -> tuple[float, float]:
    """Return the claimed epsilon of a run, and the one that its canaries show."""
    assembly = assembly_of(CANARIES + HONEST, "2nn", 1, seed=1)
    logic = logic_of(assembly, Canaries(clients=tuple(range(CANARIES))), fault)
    moved = sum(steps_of(assembly, logic, range(CANARIES + HONEST), ROUNDS))
    size = assembly.engine.layout[-1].stop
    products = [direction(one, size) @ moved for one in range(CANARIES + NOBODYS)]
    # The directions from CANARIES on are nobody's.
    there, gone = np.array(products[:CANARIES]), np.array(products[CANARIES:])
    claimed = epsilon_of([(Mechanism(NOISE, PROBABILITY), ROUNDS)], DELTA_OF_CANARIES)
    return claimed, fitted_epsilon(there, gone, DELTA_OF_CANARIES)


def fitted_epsilon(there: np.ndarray, gone: np.ndarray, delta: float) -> float:
    """Return epsilon of two normal distributions that fit the samples (their algorithm 2)."""
    first, second = (norm(one.mean(), one.std()) for one in (there, gone))
    grid = np.linspace(min(there.min(), gone.min()) - 3, max(there.max(), gone.max()) + 3, 2000)
    best = 0.0
    for one, other in ((first, second), (second, first)):
        for tail in ("sf", "cdf"):
            hit, miss = getattr(one, tail)(grid), getattr(other, tail)(grid)
            sure = (hit > delta) & (miss > 1e-300)
            if sure.any():
                best = max(best, float(np.log((hit[sure] - delta) / miss[sure]).max()))
    return best


def of_rounds(fault: str, rounds: int) -> tuple[float, float]:
    """Return the claimed epsilon of a round, and the lower bound of as many trials."""
    assembly = assembly_of(FEW, "logistic", 0, seed=2)
    logic = logic_of(assembly, Opposite(clients=tuple(range(FEW))), fault)
    axis = direction(0, assembly.engine.layout[-1].stop)
    there, gone = (
        np.array([axis @ step for step in steps_of(assembly, logic, clients, rounds)])
        for clients in (range(FEW), range(1, FEW))
    )
    claimed = epsilon_of([(Mechanism(NOISE, PROBABILITY), 1)], DELTA_OF_ROUND)
    return claimed, max(
        lower_bound(one, other, sign)
        for one, other in ((there, gone), (gone, there))
        for sign in (1, -1)
    )


def lower_bound(one: np.ndarray, other: np.ndarray, sign: int) -> float:
    """Return epsilon that a threshold shows with confidence; one half chooses it."""
    half = len(one) // 2

    def shown(first: np.ndarray, second: np.ndarray, at: float, level: float) -> float:
        hits, misses = int((sign * first > at).sum()), int((sign * second > at).sum())
        least = beta.ppf(level, hits, len(first) - hits + 1) if hits else 0.0
        most = beta.ppf(1 - level, misses + 1, len(second) - misses)
        return math.log((least - DELTA_OF_ROUND) / most) if least > DELTA_OF_ROUND else 0.0

    level = (1 - CONFIDENCE) / 2 / 4  # two shares, and four tests
    at = max(sign * one[:half], key=lambda at: shown(one[:half], other[:half], at, level))
    return shown(one[half:], other[half:], at, level)


def main() -> None:
    """Print a row for each fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3000, help="trials of the second attack")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    options = parser.parse_args()
    print("| planted fault | canaries: claimed | shown | a round: claimed | at least | found |")
    print("|---|--:|--:|--:|--:|---|")
    for fault in FAULTS if options.fault is None else (options.fault,):
        claimed, seen = of_canaries(fault)
        claimed_of_round, least = of_rounds(fault, options.rounds)
        found = seen > claimed or least > claimed_of_round
        numbers = " | ".join(f"{one:.2f}" for one in (claimed, seen, claimed_of_round, least))
        print(f"| {fault} | {numbers} | {'fault' if found else 'none'} |", flush=True)


if __name__ == "__main__":
    main()
