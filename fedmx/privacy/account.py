"""The account of one run: what it has spent after each round, and when its budget ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedmx.privacy.accounting import Spent, epsilon_of, noise_for
from layers.logic.core.privacy import Budget, Mechanism

PRIVACY = "privacy"
"""The key in the facts of a fork: what was released before it."""


@dataclass(frozen=True)
class Account:
    """What a run spends of its budget.

    It is a function of the number of rounds, so that a resumed run continues it.

    Attributes:
        budget: delta, and the most epsilon.
        mechanism: what each round releases.
        once: what is released before round 1, besides; None: nothing.
        before: what was released of the same clients before the run's first own round: of a fork,
            all rounds of the run that it comes from.
        begun: the number of rounds that the run has from that other run.
    """

    budget: Budget
    mechanism: Mechanism
    once: Mechanism | None = None
    before: Spent = ()
    begun: int = 0

    @classmethod
    def of(
        cls, budget: Budget, mechanism: Mechanism, rounds: int, once: Mechanism | None = None
    ) -> Account:
        """Return the account of a run, with the noise that its budget asks for if none is given.

        Raises:
            FedmxError: dp-accounting is not installed, or no noise keeps the budget.
        """
        if mechanism.noise is None:
            assert budget.epsilon is not None  # else the noise is given
            q = mechanism.probability
            noise = noise_for(q, mechanism.releases(0, rounds), budget.epsilon, budget.delta)
            mechanism = replace(mechanism, noise=noise)
        return cls(budget, mechanism, once)

    @property
    def noise(self) -> float:
        """The noise multiplier of a round."""
        assert self.mechanism.noise is not None
        return self.mechanism.noise

    def spent(self, round: int) -> Spent:
        """Return all that was released up to a round."""
        one = Mechanism(self.noise, self.mechanism.probability)
        begins = ((self.once, 1),) if self.once is not None and round > self.begun else ()
        return (*self.before, *begins, (one, self.mechanism.releases(self.begun, round)))

    def epsilon(self, round: int) -> float:
        """Return epsilon after a round, with all that was released before."""
        return epsilon_of(self.spent(round), self.budget.delta)

    def reason(self, round: int) -> str | None:
        """Return why the run ends after a round, or None: the next one would exceed the budget."""
        most = self.budget.epsilon
        if most is None or self.epsilon(round + 1) <= most:
            return None
        return f"round {round + 1} would spend more than epsilon {most:g}"

    def record(self, round: int) -> dict[str, Any]:
        """Return the account after a round, as the facts of a fork keep it."""
        return {"spent": [[asdict(one), times] for one, times in self.spent(round)]}

    def after(self, facts: Mapping[str, Any] | None, begun: int) -> Account:
        """Return the account of a fork.

        Args:
            facts: the record of what its parent had spent; None: the run is no fork.
            begun: the number of rounds that both have.
        """
        if facts is None:
            return self
        before = tuple((Mechanism(**one), int(times)) for one, times in facts["spent"])
        return replace(self, before=before, begun=begun)
