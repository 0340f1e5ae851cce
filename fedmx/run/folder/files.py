"""Where each file of a run folder is.

::

    NAME-20260131-093000/
      run.json            format, facts (versions, seed, mode, ...), SHA-256 of the files that it
                          began with; written last when it is created
      experiment.yaml     the experiment with all defaults
      status.json         how the run ended, and why
      rounds.jsonl        one object for each round
      clients.jsonl       one object for each client and round
      course.jsonl        of a server: one object for each round, with all that its clients told it
      checkpoints/        round-000012.safetensors; the newest are kept, and others if asked for
      events/             TensorBoard's event files
      model.safetensors   the final weights
      start.safetensors   the weights of before round 1, if the experiment gives a file of them
      words.json          the words of the data's tokens, if the model takes them
      assets/             of a server: NAME.safetensors, the files that it gives to every client
      report.html         the report
      live.json           of a server: what it does now, or last did; renewed every second
      lock                the process that runs it holds this file

Each record and each document has a checksum (see `checksum`). What is damaged is named, and the
rest is read.
"""

from __future__ import annotations

from pathlib import Path

EXPERIMENT = "experiment.yaml"


class RunFiles:
    """The part of a run folder that knows where its files are."""

    path: Path

    @property
    def name(self) -> str:
        """The folder's name, time included."""
        return self.path.name

    @property
    def events_path(self) -> Path:
        """The folder of TensorBoard's event files, for ``tensorboard --logdir``."""
        return self.path / "events"

    @property
    def model_path(self) -> Path:
        """The file of the final weights; it exists when the run has ended."""
        return self.path / "model.safetensors"

    @property
    def start_path(self) -> Path:
        """The file of the weights that the run began from, if `compute.start` gave them."""
        return self.path / "start.safetensors"

    @property
    def words_path(self) -> Path:
        """The file of the words of the data's tokens, if the model takes them."""
        return self.path / "words.json"

    @property
    def assets_path(self) -> Path:
        """The folder of the files that a server gives to every client, if there are any."""
        return self.path / "assets"

    @property
    def course_path(self) -> Path:
        """The file of the course of a deployed run."""
        return self.path / "course.jsonl"

    @property
    def live_path(self) -> Path:
        """The file that a server renews while it runs: who is there, and who is waited for."""
        return self.path / "live.json"

    @property
    def report_path(self) -> Path:
        """The file of the report; it exists when the run has ended."""
        return self.path / "report.html"

    @property
    def _lock_path(self) -> Path:
        return self.path / "lock"

    @property
    def _status_path(self) -> Path:
        return self.path / "status.json"
