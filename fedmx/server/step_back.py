"""Stepping back: a model that clients cannot train on is replaced by an earlier one.

The sender is not known. So the clients whose updates counted since then are suspected, the one
that changed weights or buffers most first. The first suspect is excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from layers.logic import RoundReport

MOST_IN_A_ROW = 10
"""How often a run steps back before it gets past the round that failed."""

MOST_ROUNDS = 100  # whose largest updates are remembered
MOST_SUSPECTS = 5  # of a round


@dataclass(frozen=True)
class StepBack:
    """One step back.

    Attributes:
        round: the round that failed.
        to: the run goes on from the state after this round.
        reason: why the round failed.
        suspects: the clients whose updates counted since `to`, the largest update first.
        excluded: the clients that get no task from now on.
    """

    round: int
    to: int
    reason: str
    suspects: tuple[int, ...]
    excluded: tuple[int, ...]

    def record(self) -> dict[str, Any]:
        """Return it as a record of rounds.jsonl and a checkpoint have it."""
        return {**asdict(self), "suspects": list(self.suspects), "excluded": list(self.excluded)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> StepBack:
        """Return the step that `record` was made from."""
        lists = {name: tuple(record[name]) for name in ("suspects", "excluded")}
        return cls(**{**record, **lists})

    def __str__(self) -> str:
        suspects = ", ".join(map(str, self.suspects)) or "nobody"
        text = f"went back to the model after round {self.to} because of {self.reason}; "
        text += f"suspected clients, the largest update first: {suspects}"
        if self.excluded:
            text += f"; not asked any more: {', '.join(map(str, self.excluded))}"
        return text


@dataclass
class StepsBack:
    """The steps back of a run, and the facts that the next one needs.

    Attributes:
        steps: the steps, the first one first.
        largest: by round, the clients whose accepted updates go farthest, and how far they go,
            the largest first.
    """

    steps: list[StepBack] = field(default_factory=list)
    largest: dict[int, dict[int, float]] = field(default_factory=dict)

    def note(self, report: RoundReport) -> None:
        """Remember the largest updates of a round."""
        self.largest[report.round] = _largest_of(report)
        for round in [one for one in self.largest if one <= report.round - MOST_ROUNDS]:
            del self.largest[round]

    def forget_after(self, round: int) -> None:
        """Forget the updates of later rounds."""
        self.largest = {one: kept for one, kept in self.largest.items() if one <= round}

    def in_a_row(self, round: int) -> int:
        """Return how often the run has stepped back without getting past `round`."""
        return sum(step.round >= round for step in self.steps)

    def retried(self, round: int) -> bool:
        """Return whether a round has been run again from the model that it failed on."""
        return any((step.round, step.to) == (round, round - 1) for step in self.steps)

    def suspects(self, after: int) -> tuple[int, ...]:
        """Return the clients with the largest updates after a round, the largest first."""
        peaks: dict[int, float] = {}
        for round, kept in self.largest.items():
            for client, peak in kept.items():
                if round > after:
                    peaks[client] = max(peak, peaks.get(client, 0.0))
        return _first(peaks)

    def worst_round(self, after: int) -> int | None:
        """Return the first round with the largest of all updates after a round, if it has any."""
        peaks = {
            round: max(kept.values())
            for round, kept in self.largest.items()
            if round > after and kept
        }
        return max(peaks, key=lambda round: (peaks[round], -round), default=None)

    def leading_to(self, round: int) -> tuple[StepBack, ...]:
        """Return the steps back after which a round was run."""
        return tuple(step for step in self.steps if step.to == round - 1)

    def tree(self) -> dict[str, Any]:
        """Return it as named numbers and text, for a checkpoint."""
        steps = {str(place): step.record() for place, step in enumerate(self.steps)}
        return {"steps": steps, "largest": dict(self.largest)}

    def restore(self, tree: Mapping[str, Any]) -> None:
        """Become what `tree` was made from."""
        steps = tree["steps"]
        self.steps = [StepBack.of(steps[str(place)]) for place in range(len(steps))]
        self.largest = {round: dict(kept) for round, kept in tree["largest"].items()}


def summary(steps: Sequence[StepBack]) -> str:
    """Return the steps back of a run in one line, for its ending; empty if there are none."""
    if not steps:
        return ""
    excluded = [str(client) for step in steps for client in step.excluded]
    text = f"stepped back {len(steps)} {'time' if len(steps) == 1 else 'times'}"
    return text + (f", excluded clients {', '.join(excluded)}" if excluded else "")


def _largest_of(report: RoundReport) -> dict[int, float]:
    peaks = {one.client: one.peak for one in report.clients if one.status == "accepted"}
    return {client: peaks[client] for client in _first(peaks)}


def _first(peaks: Mapping[int, float]) -> tuple[int, ...]:
    ranked = sorted(peaks, key=lambda client: (-peaks[client], client))
    return tuple(ranked[:MOST_SUSPECTS])
