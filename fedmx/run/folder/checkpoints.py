"""The checkpoints in a run folder."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedmx.run.checkpoint import Checkpoint, checkpoints_in, read_checkpoint
from fedmx.run.errors import CheckpointError


class RunCheckpoints:
    """The part of a run folder that finds and reads checkpoints."""

    path: Path

    @property
    def checkpoints_path(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def checkpoint_path(self, round: int) -> Path:
        """Return the file of a round's checkpoint."""
        return self.checkpoints_path / f"round-{round:06d}.safetensors"

    @property
    def checkpoint_rounds(self) -> list[int]:
        """The rounds of which there are checkpoints, the newest first."""
        return [number for number, _ in checkpoints_in(self.checkpoints_path)]

    def latest_checkpoint(self) -> Checkpoint | None:
        """Return the newest whole checkpoint, with a warning for each newer one that is damaged.

        Returns:
            The checkpoint, or None if the run has none.

        Raises:
            CheckpointError: all checkpoints are damaged.
        """
        warnings: list[str] = []
        for _, path in checkpoints_in(self.checkpoints_path):
            try:
                return read_checkpoint(path)._replace(warnings=tuple(warnings))
            except CheckpointError as error:
                warnings.append(str(error))
        if warnings:
            raise CheckpointError(
                f"{self.path}: no checkpoint can be used; run the experiment again: "
                + "; ".join(warnings)
            )
        return None

    def checkpoint_before(self, round: int) -> Checkpoint | None:
        """Return the newest whole checkpoint of an earlier round; None: there is none."""
        for number, path in checkpoints_in(self.checkpoints_path):
            if number < round:
                with contextlib.suppress(CheckpointError):
                    return read_checkpoint(path)
        return None

    def _remove_checkpoints(self, later_than: int) -> None:
        """Remove the checkpoints of later rounds."""
        for number, path in checkpoints_in(self.checkpoints_path):
            if number > later_than:
                path.unlink(missing_ok=True)
