"""Tells Weights & Biases of a run: its settings, the numbers of each round, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedmx.callbacks.tracked import files_of, name_of, settings_of
from fedmx.callbacks.tracker import Tracker
from fedmx.errors import FedmxError
from fedmx.run.ending import Ending
from fedmx.server.callback import Running


@dataclass
class WandbLogger(Tracker):
    """Logs a run to Weights & Biases; ``pip install fedmx[wandb]``.

    The run's id is the name of the run folder, so that a resumed run goes on in the same run. What
    is written offline has all rounds in itself, those before a resume included.

    Attributes:
        project: the project.
        name: of the run; None: the name of the run folder.
        mode: ``online``, ``offline`` (``wandb sync`` sends it later) or ``disabled``; None: what
            WANDB_MODE says.
        folder: where files are written until they are sent; None: what WANDB_DIR says.
        files: whether experiment, model and report are sent.
        path: where the run is written; known when it has begun.
    """

    project: str = "fedmx"
    name: str | None = None
    mode: Literal["online", "offline", "disabled"] | None = None
    folder: str | Path | None = None
    files: bool = True
    path: Path | None = field(default=None, init=False)
    _wandb: Any = field(default=None, init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        """Begin a run, or go on with it.

        Raises:
            FedmxError: the package is not installed, or the run cannot begin.
        """
        try:
            import wandb
        except ImportError:
            raise FedmxError("WandbLogger needs wandb; pip install fedmx[wandb]") from None
        name = name_of(run)
        try:
            self._wandb = wandb.init(
                project=self.project,
                name=self.name or name,
                id=None if run.folder is None else name,
                resume=None if run.folder is None else "allow",
                mode=self.mode,
                dir=None if self.folder is None else str(self.folder),
                config=settings_of(run),
                reinit="create_new",  # the caller may have a run of his own
            )
        except (wandb.errors.Error, ValueError) as error:
            raise FedmxError(f"WandbLogger: {str(error).splitlines()[0]}") from error
        self._run, self.path = run, Path(self._wandb.dir).parent
        self._wandb.define_metric("*", step_metric="round")
        self._go_on(run, int(self._wandb.summary.get("round", 0)) if self._wandb.resumed else 0)

    def on_end(self, status: Ending, reason: str) -> None:
        """Send the files, and end the run."""
        if self._wandb is None or self._run is None:
            return
        self._wandb.summary.update({"status": status, "reason": reason})
        if self.files:
            for path in files_of(self._run):
                self._wandb.save(str(path), base_path=str(path.parent), policy="now")
        self._wandb.finish(exit_code=int(status == "failed"))

    def _send(self, round: int, numbers: Mapping[str, float]) -> None:
        self._wandb.log({"round": round, **numbers})
