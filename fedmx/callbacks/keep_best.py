"""Keeps the model of the round with the best accuracy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.run.durable import write_text_durably
from fedmx.server.callback import Callback, Running
from fedmx.server.round import Round

BEST = "best.safetensors"


@dataclass
class KeepBest(Callback):
    """Writes the global model whenever its accuracy is the best until then.

    Beside the model stands a file of the same name that ends in ``.json``, with its round, accuracy
    and SHA-256. From it a resumed run knows the best model, also if that is of a round after the
    checkpoint: the rounds that are run again give the same models.

    Attributes:
        path: the file; None: ``best.safetensors`` in the run folder.
        best_round: the round of the best model; 0: there is none yet.
        best_accuracy: its accuracy, from 0 to 1.
    """

    path: str | Path | None = None
    best_round: int = field(default=0, init=False)
    best_accuracy: float = field(default=-1.0, init=False)
    _run: Running | None = field(default=None, init=False, repr=False)

    def on_begin(self, run: Running) -> None:
        """Read what the best model was before a resume.

        Raises:
            FedmxError: there is neither a path nor a run folder; the path does not end in
                ``.safetensors``; or fedmx did not write the files that are there.
        """
        if self.path is None and run.folder is None:
            raise FedmxError(
                "KeepBest: the run has no folder; give a file, as in KeepBest('best.safetensors')"
            )
        self._run, self.best_round, self.best_accuracy = run, 0, -1.0
        if self.path is not None:
            self._check_files(begins=run.state.round == 0)
        if run.state.round > 0 and self.model_path.exists() and self._about.exists():
            about = json.loads(self._about.read_text("utf-8"))
            self.best_round, self.best_accuracy = about["round"], about["accuracy"]

    def on_round(self, round: Round) -> None:
        """Write the model if it is the best one until now."""
        if round.stepped_back and self.best_round >= round.round:
            self.best_accuracy = -1.0  # of a round that is forgotten
        if round.accuracy is None or not round.accuracy > self.best_accuracy:
            return
        assert self._run is not None
        self.best_round, self.best_accuracy = round.round, round.accuracy
        self._run.save_model(self.model_path)
        about = {
            "round": round.round,
            "accuracy": round.accuracy,
            "loss": round.loss,
            "model_sha256": round.model_sha256,
        }
        write_text_durably(self._about, json.dumps(about) + "\n")

    def _check_files(self, *, begins: bool) -> None:
        """Check that no file of somebody else is replaced.

        A resumed run may find a model alone: its process ended before it wrote the file beside it.

        Raises:
            FedmxError: there is one.
        """
        file, alone = self.model_path, not self._about.exists()
        if file.suffix != ".safetensors" or file.is_dir() or (begins and alone):
            check_output(file, "the best model is a safetensors file", (".safetensors",))
        check_output(self._about, "what stands beside the best model is JSON", (".json",))

    @property
    def model_path(self) -> Path:
        """The file of the best model."""
        if self.path is not None:
            return Path(self.path)
        assert self._run is not None
        assert self._run.folder is not None
        return self._run.folder.path / BEST

    @property
    def _about(self) -> Path:
        return self.model_path.with_suffix(".json")
