"""The checkpoints of a run that is run again, in memory: what its server may step back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedmx.experiment.sections import CheckpointSection
from fedmx.run import RunFolder
from fedmx.run.checkpoint import Keep
from fedmx.server.round import Round


class KeptCheckpoints:
    """A recorder that writes nothing; it keeps the checkpoints that the recorded run kept.

    Args:
        section: the cadence of the recorded run.
        last_round: the number of its last round, which always has a checkpoint.
        folder: the recorded run, whose older checkpoints are found, too.
        steps_back: whether the recorded run stepped back; if not, the newest checkpoint is enough.

    Attributes:
        steps: how often the server has stepped back.
    """

    def __init__(
        self, section: CheckpointSection, last_round: int, folder: RunFolder, steps_back: bool
    ) -> None:
        self._every = section.every
        self._keep = Keep(section.keep.last, section.keep.every) if steps_back else Keep(1)
        self._last_round = last_round
        self._folder = folder
        self._first = 0  # the first round of which a checkpoint can be here
        self._kept: dict[int, Mapping[str, Any]] = {}
        self.steps = 0

    def begin(self, round: int, checkpoint: Mapping[str, Any]) -> None:
        """Begin after a round, with the checkpoint of it."""
        self._first = round
        self._kept = {round: checkpoint} if round else {}

    def record(self, round: Round, checkpoint: Mapping[str, Any]) -> None:
        """Keep the checkpoint of a round, if one is due."""
        if self._keep.is_due(round.round, self._every) or round.round == self._last_round:
            self._add(round.round, checkpoint, self._keep)

    def step_back(self, round: int, checkpoint: Mapping[str, Any]) -> None:
        """Forget what came after `round`, and keep this checkpoint of it."""
        self.steps += 1
        self._add(round, checkpoint, replace(self._keep, last=self._keep.last + 1))
        self._kept = {one: kept for one, kept in self._kept.items() if one <= round}

    @property
    def checkpoint_rounds(self) -> Sequence[int]:
        """The rounds of which there are checkpoints, the newest first."""
        older = (one for one in self._folder.checkpoint_rounds if one < self._first)
        return [*sorted(self._kept, reverse=True), *older]

    def earlier(self, round: int) -> Mapping[str, Any] | None:
        """Return the newest checkpoint that was kept before a round; None: there is none."""
        here = max((one for one in self._kept if one < round), default=None)
        if here is not None:
            return self._kept[here]
        checkpoint = self._folder.checkpoint_before(min(round, self._first))
        return None if checkpoint is None else checkpoint.state

    def of(self, round: int) -> Mapping[str, Any]:
        """Return the checkpoint of a round to which the server has stepped back."""
        return self._kept[round]

    def _add(self, round: int, checkpoint: Mapping[str, Any], keep: Keep) -> None:
        self._kept[round] = checkpoint
        for old in keep.superfluous(sorted(self._kept, reverse=True)):
            del self._kept[old]
