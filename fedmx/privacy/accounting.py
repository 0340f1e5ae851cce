"""Accounting: epsilon of composed rounds, and the least noise for a budget, by dp-accounting.

Two runs are neighbours if one has a client more (add or remove one). Epsilon follows from privacy
loss distributions (PLD; Meiser and Mohammadi 2018, Koskela et al. 2020, Doroshenko et al. 2022) on
a grid that rounds losses up, and is checked against Renyi orders (RDP; Mironov 2017), which give
another, larger bound. Both are kept on disk, as they take seconds.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedmx.errors import FedmxError
from fedmx.run.durable import write_text_durably
from layers.compute.data.files import default_cache
from layers.extras import install
from layers.logic.core.privacy import Mechanism

GRID = 5e-4
"""The width of the grid of privacy losses, which makes epsilon at most 0.03 % too large in all that
was measured, and never too small."""

NOISE_PLACES = 4  # of the noise that is found, which is rounded up
EPSILON_PLACES = 4  # of epsilon, which is rounded up
MOST_NOISE = 10_000.0

Spent = Sequence[tuple[Mechanism, int]]
"""Mechanisms, each with how often it released something."""


class Uncountable(FedmxError):
    """An epsilon cannot be computed."""


def epsilon_of(spent: Spent, delta: float) -> float:
    """Return epsilon of rounds one after the other, rounded up to four places.

    Raises:
        FedmxError: dp-accounting is not installed.
        Uncountable: both bounds contradict each other.
    """
    # Epsilon without delta adds up with that of all else.
    pure = sum(one.epsilon * times for one, times in spent if one.epsilon is not None)
    rounds = _joined(spent)
    if not rounds:
        return _rounded_up(pure, EPSILON_PLACES)

    def computed() -> float:
        by_pld, by_rdp = pld_epsilon(rounds, delta), rdp_epsilon(rounds, delta)
        if by_pld > by_rdp * (1 + 1e-3) + 1e-3 * len(rounds):
            raise Uncountable(
                f"privacy: epsilon is {by_pld:.4f} by privacy loss distributions and "
                f"{by_rdp:.4f} by Renyi orders, which must be larger; report this as a bug"
            )
        return min(by_pld, by_rdp)

    key: list[Any] = ["epsilon", delta]
    key += [[one.noise, one.probability, times] for one, times in rounds]
    return _rounded_up(_kept(key, computed) + pure, EPSILON_PLACES)


def noise_for(probability: float, rounds: int, epsilon: float, delta: float) -> float:
    """Return the least noise multiplier that keeps the budget of all rounds, rounded up.

    Raises:
        FedmxError: dp-accounting is not installed.
        Uncountable: no noise keeps the budget.
    """

    def keeps(noise: float) -> bool:
        return pld_epsilon([(Mechanism(noise, probability), rounds)], delta) <= epsilon

    def computed() -> float:
        return _least(keeps, _start(probability, rounds, epsilon, delta))

    return _kept(["noise", probability, rounds, epsilon, delta], computed)


def _start(probability: float, rounds: int, epsilon: float, delta: float) -> float:
    """Return a noise near the least one, found by Renyi orders, which are fast."""
    low, high = 0.05, 1.0
    while rdp_epsilon([(Mechanism(high, probability), rounds)], delta) > epsilon:
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise Uncountable(
                f"privacy: no noise up to {MOST_NOISE:g} keeps epsilon {epsilon:g} over {rounds} "
                "releases; raise epsilon, or lower rounds, or let clients take part less often"
            )
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        if rdp_epsilon([(Mechanism(middle, probability), rounds)], delta) > epsilon:
            low = middle
        else:
            high = middle
    return high


def _least(keeps: Callable[[float], bool], start: float) -> float:
    """Return the least number of `NOISE_PLACES` decimal places that keeps the budget."""
    unit = 10**NOISE_PLACES
    high = math.ceil(start * unit)
    while not keeps(high / unit):  # Renyi orders were a tighter bound
        high = math.ceil(high * 1.05)
    width = max(round(0.02 * high), 1)
    low = high - width
    while low > 0 and keeps(low / unit):
        high, width = low, 2 * width
        low = high - width
    low = max(low, 0)
    while high - low > 1:
        middle = (low + high) // 2
        if keeps(middle / unit):
            high = middle
        else:
            low = middle
    return float(high / unit)


def pld_epsilon(spent: Spent, delta: float) -> float:
    """Return epsilon by privacy loss distributions."""
    whole: Any = None
    for mechanism, times in spent:
        one = _pld(mechanism).self_compose(times)
        whole = one if whole is None else whole.compose(one)
    epsilon: float = whole.get_epsilon_for_delta(delta)
    return epsilon


def rdp_epsilon(spent: Spent, delta: float) -> float:
    """Return epsilon by Renyi orders."""
    with _quietly():
        accounting = _dp_accounting()
        accountant = accounting.rdp.RdpAccountant()
        for mechanism, times in spent:
            event: Any = accounting.GaussianDpEvent(mechanism.noise)
            if mechanism.probability < 1:
                event = accounting.PoissonSampledDpEvent(mechanism.probability, event)
            accountant.compose(event, times)
        return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=16)
def _pld(mechanism: Mechanism) -> Any:
    _dp_accounting()
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        mechanism.noise,
        value_discretization_interval=GRID,
        sampling_prob=mechanism.probability,
    )


def check_installed() -> None:
    """Check that dp-accounting is here, before anything runs.

    Raises:
        FedmxError: it is not.
    """
    _dp_accounting()


def _dp_accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError as error:
        raise FedmxError(f"privacy: needs dp-accounting ({error}); {install('privacy')}") from None
    return dp_accounting


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep dp-accounting from logging each Renyi order that it leaves out."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _joined(spent: Spent) -> list[tuple[Mechanism, int]]:
    """Return the mechanisms, each once; the order of rounds does not change epsilon."""
    counts: dict[Mechanism, int] = {}
    for mechanism, times in spent:
        if mechanism.epsilon is None:
            counts[mechanism] = counts.get(mechanism, 0) + times
    found = [(one, times) for one, times in counts.items() if times]
    return sorted(found, key=lambda pair: (pair[0].noise or 0.0, pair[0].probability))


def _rounded_up(value: float, places: int) -> float:
    return float(math.ceil(value * 10**places) / 10**places)


def _kept(key: Sequence[Any], compute: Callable[[], float]) -> float:
    """Return a number from the cache on disk, or compute and keep it.

    A cache that cannot be read or written is ignored.
    """
    text = json.dumps([1, GRID, *key])
    path = _folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text())
        if found["of"] == text:
            kept: float = found["is"]
            return kept
    value = compute()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_durably(path, json.dumps({"of": text, "is": value}))
    return value


def _folder() -> Path:
    return default_cache() / "privacy"
