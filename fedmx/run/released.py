"""What the server of a private run may have released, which no restart may forget.

Checkpoints and records are removed when a run goes on from an earlier round; `released.jsonl` is
not. It has one line for each round whose model may have left the server: the round, the hash of the
model, and the epsilon of all models so far. Whatever else leaves the server with a model follows
from the same noisy sums.
"""

from __future__ import annotations

from pathlib import Path

from fedmx.run.durable import RunError, cannot_write
from fedmx.run.records import JsonLines


class Released:
    """The models that may have left the server, by round.

    Args:
        folder: the run folder.

    Attributes:
        epsilon: of all of them; None: there are none.

    Raises:
        RunError: the file cannot be read.
    """

    def __init__(self, folder: Path):
        self._file = JsonLines(folder / "released.jsonl")
        lines = list(self._file.read())
        self._models = {one["round"]: str(one["model_sha256"]) for one in lines}
        self.epsilon: float | None = max((one["epsilon"] for one in lines), default=None)

    @property
    def last(self) -> int:
        """The last round whose model may have left; 0: none has, but the initial one."""
        return max(self._models, default=0)

    def check_whole(self, recorded: int) -> None:
        """Check that the file knows of every round that a run has recorded.

        Clients may not have the model of the last one: its line is written after the record.

        Raises:
            RunError: it is damaged, or lines are missing.
        """
        known = max(self.last, recorded - 1)
        missing = [round for round in range(1, known + 1) if round not in self._models]
        if missing or self._file.damaged:
            which = f"round {missing[0]}" if missing else f"line {min(self._file.damaged)}"
            raise RunError(
                f"{self._file.path}: {which} is missing or damaged, so that a private run could "
                "release a second model of a round uncounted; restore the file, or start a new run"
            )

    def check(self, round: int, model_sha256: str) -> None:
        """Check that a round's model may leave: no other one of this round has.

        Raises:
            RunError: another one may have.
        """
        if self._models.get(round, model_sha256) != model_sha256:
            raise RunError(
                f"{self._file.path.parent}: round {round} was run again and ended in another model "
                "than the one that clients may have; both together would spend more privacy than "
                "is counted; restore the newest checkpoint, or resume once the clients of that "
                "round are back, or start a new run"
            )

    def note(self, round: int, model_sha256: str, epsilon: float) -> None:
        """Note that a round's model may leave from now on; it is on the disk on return.

        Args:
            round: the round.
            model_sha256: the hash of its model.
            epsilon: of all models up to this one.

        Raises:
            RunError: another one may have left, or the file cannot be written.
        """
        self.check(round, model_sha256)
        if round in self._models:
            return
        line = {"round": round, "model_sha256": model_sha256, "epsilon": epsilon}
        self._file.append([line])
        try:
            self._file.sync()
        except OSError as error:
            raise RunError(cannot_write(self._file.path, error)) from None
        self._models[round], self.epsilon = model_sha256, epsilon
