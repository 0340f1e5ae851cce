"""An audit of privacy: empirical lower bounds of epsilon beside the claimed one.

    python benchmarks/dp_audit.py [--rounds 3000] [--fault noise|clip|...]

Two attacks see what is published with central privacy: the models.

* Canaries in one run (Andrew et al. 2023): some clients send directions of their own. Epsilon is
  that of the two normal distributions which fit the last model's products with these directions,
  and with others that nobody sent. It is an estimate.
* Rounds as trials: all clients but one send the same update, and that one, if it is there, the
  opposite. A threshold from one half of the rounds tells runs with it from runs without; the other
  half gives a lower bound with 95 % confidence (Clopper and Pearson).

The second attack also sees sums with the clients' noise, of the fewest clients that open one. A
client sends its update, or only noise. Nobody is drawn. The claim assumes that one of the others
adds no noise.

Each row has a planted fault, or none. A row whose lower bound is above the claim shows a fault.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.stats import beta, norm

from fedmx import Assembly, Experiment
from fedmx.privacy.accounting import epsilon_of
from fedmx.simulation.executors.executor import SerialExecutor
from fedmx.simulation.simulated_clients import SimulatedClients
from layers.logic import Contribution, Logic, OpenRound, ServerState, Update, run_round
from layers.logic.core.attack import Attack
from layers.logic.core.hook import ClientContext
from layers.logic.core.privacy import Mechanism
from layers.logic.privacy.central import PrivateMean, on_grid
from layers.logic.privacy.secure_sum import MaskedSum
from layers.logic.secrets import SecretDraws
from layers.logic.secure_sum.noise import STEPS, SharedNoise, in_steps
from layers.logic.seeds import generator
from layers.logic.selectors.poisson import Poisson
from layers.logic.selectors.uniform import Uniform

FAULTS = ("none", "noise", "clip", "sampling")
CLIP, PROBABILITY, NOISE = 0.5, 0.1, 1.0
CANARIES, NOBODYS, HONEST, ROUNDS = 500, 5000, 50, 50
FEW, DELTA, DELTA_OF_ROUND = 20, 1e-3, 5e-3
IN_SUM, ASKED = 4, 16  # the clients of the smallest sum, and of the round before some are lost
CENTRAL = {"name": "central", "clip": CLIP, "delta": DELTA, "noise": NOISE}
SUM = {"name": "secure-sum", "clip": CLIP, "delta": DELTA, "noise": NOISE, "min_clients": IN_SUM}
POISSON = {"name": "poisson", "probability": PROBABILITY}
DELTA_OF_CANARIES = 0.01  # the tails of two fitted distributions say little
EXCESS = 20.0  # how much longer than the clip a canary is
CONFIDENCE = 0.95
ESTIMATE_OFF = 0.1  # what an estimate may be off by chance


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


class Silent(SharedNoise):
    """No noise."""

    def hidden(
        self,
        values: np.ndarray,
        clip: float,
        clients: int,
        draws: SecretDraws,
        uniforms: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the whole numbers as they are."""
        return in_steps(values, clip, uniforms).astype(np.uint32)


class ForAllAsked(SharedNoise):
    """Shares that make the noise together if nobody is lost."""

    def deviation(self, clients: int) -> float:
        """Return the deviation of a share."""
        return self.multiple * STEPS / math.sqrt(ASKED)


@dataclass(frozen=True)
class WithSilent(MaskedSum):
    """A sum to which some clients add no noise.

    Attributes:
        silent: these clients.
    """

    silent: Sequence[int] = ()

    class Client(MaskedSum.Client):
        """The client's end."""

        def send(self, update: Update, context: ClientContext) -> Update:
            """Send the words, without noise if the client is one of those."""
            if context.client in self.hook.silent:
                self.hook = replace(self.hook, noise=Silent(NOISE, IN_SUM))
            return super().send(update, context)


@dataclass(frozen=True)
class OneOrNothing(Attack):
    """Client 0 sends a direction if it is there; all others send nothing, and so does it if not.

    Attributes:
        there: whether it is.
    """

    there: bool = True

    def lie_in_update(self, delta: np.ndarray, context: ClientContext) -> np.ndarray:
        """Return the update of a client."""
        length = CLIP * EXCESS if context.client == 0 and self.there else 0.0
        return (direction(0, delta.size) * length).astype(np.float32)


FAULTS_OF_SUM: dict[str, tuple[type[SharedNoise], int]] = {
    "sum": (SharedNoise, 0),
    "sum-one-missing": (SharedNoise, 1),
    "sum-two-missing": (SharedNoise, 2),
    "sum-survivors": (ForAllAsked, 0),
    "sum-noise": (Silent, 0),
}
"""The noise of a sum, and how many clients add none: the claim assumes one."""


def of_sums(fault: str, rounds: int) -> tuple[float, float, float]:
    """Return the claimed epsilon of a sum of `IN_SUM` clients, and what as many trials show.

    The second number is that of two normal distributions that fit them, the third a lower bound.
    """
    kind, missing = FAULTS_OF_SUM[fault]
    assembly = assembly_of(IN_SUM, "logistic", 0, 3, SUM, {"name": "uniform"})
    logic, axis = assembly.server_logic, direction(0, assembly.engine.layout[-1].stop)
    (hook,) = logic.hooks
    given = {one.name: getattr(hook, one.name) for one in fields(MaskedSum)}
    given |= {"noise": kind(NOISE, IN_SUM), "silent": range(IN_SUM - missing, IN_SUM)}
    clients = tuple(range(IN_SUM))

    def products(there: bool) -> np.ndarray:
        hooks = WithSilent(**given), OneOrNothing(clients=clients, there=there)
        made = replace(logic, hooks=hooks, seed=int(there))  # other noise
        steps = steps_of(assembly, made, clients, rounds, IN_SUM / CLIP)
        return np.array([axis @ step for step in steps])

    there, gone = products(True), products(False)
    seen = fitted_epsilon(there, gone, DELTA_OF_ROUND) if gone.std() else math.inf
    mechanism = Mechanism(SharedNoise(NOISE, IN_SUM).accounted, 1.0)
    claimed = epsilon_of([(mechanism, 1)], DELTA_OF_ROUND)
    return claimed, seen, most_shown(there, gone)


def direction(number: int, size: int) -> np.ndarray:
    """Return a unit vector, float64 (size,)."""
    drawn = generator(0, "canary", number).normal(size=size)
    return np.asarray(drawn / np.linalg.norm(drawn))


def assembly_of(
    clients: int,
    model: str,
    steps: int,
    seed: int,
    privacy: Mapping[str, Any] = CENTRAL,
    selector: Mapping[str, Any] = POISSON,
) -> Assembly:
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
            privacy=privacy,
            logic={
                "preset": {"name": "fedavg", "weights": "uniform"},
                "selector": selector,
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
    assembly: Assembly, logic: Logic, clients: Sequence[int], rounds: int, scale: float
) -> list[np.ndarray]:
    """Return the change of the model in each round, times the scale: in clips of the sum."""
    engine = assembly.engine
    sizes = assembly.sizes()
    executor = SerialExecutor(logic, engine, assembly.samples_of)
    state = ServerState(0, *engine.initial(assembly.experiment.seed))
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
    clients = range(CANARIES + HONEST)
    moved = sum(steps_of(assembly, logic, clients, ROUNDS, PROBABILITY * len(clients) / CLIP))
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
        np.array(
            [
                axis @ step
                for step in steps_of(assembly, logic, clients, rounds, PROBABILITY * FEW / CLIP)
            ]
        )
        for clients in (range(FEW), range(1, FEW))
    )
    claimed = epsilon_of([(Mechanism(NOISE, PROBABILITY), 1)], DELTA_OF_ROUND)
    return claimed, most_shown(there, gone)


def most_shown(there: np.ndarray, gone: np.ndarray) -> float:
    """Return the largest lower bound of four tests."""
    return max(
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
    parser.add_argument("--fault", choices=(*FAULTS, *FAULTS_OF_SUM), help="only this one")
    options = parser.parse_args()
    print_sums([one for one in FAULTS_OF_SUM if options.fault in (None, one)], options.rounds)
    print_central([one for one in FAULTS if options.fault in (None, one)], options.rounds)


def print_sums(faults: Sequence[str], rounds: int) -> None:
    """Print a row for each fault of a sum."""
    print("| planted fault of a sum | claimed | estimate | at least | found |")
    print("|---|--:|--:|--:|---|")
    for fault in faults:
        claimed, seen, least = of_sums(fault, rounds)
        found = least > claimed or seen > (1 + ESTIMATE_OFF) * claimed
        numbers = " | ".join(f"{one:.2f}" for one in (claimed, seen, least))
        print(f"| {fault} | {numbers} | {'fault' if found else 'none'} |", flush=True)


def print_central(faults: Sequence[str], rounds: int) -> None:
    """Print a row for each fault of central privacy."""
    print("| planted fault | canaries: claimed | shown | a round: claimed | at least | found |")
    print("|---|--:|--:|--:|--:|---|")
    for fault in faults:
        claimed, seen = of_canaries(fault)
        claimed_of_round, least = of_rounds(fault, rounds)
        found = seen > claimed or least > claimed_of_round
        numbers = " | ".join(f"{one:.2f}" for one in (claimed, seen, claimed_of_round, least))
        print(f"| {fault} | {numbers} | {'fault' if found else 'none'} |", flush=True)


if __name__ == "__main__":
    main()
