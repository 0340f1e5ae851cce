"""The folder of a run: the experiment, the records of each round, and the checkpoints.

::

    NAME-20260131-093000/
      run.json            format, facts (versions, seed, mode, ...), SHA-256 of the files that it
                          began with; written last when it is created
      experiment.yaml     the experiment with all defaults
      status.json         how the run ended, and why
      rounds.jsonl        one object for each round
      clients.jsonl       one object for each client and round
      checkpoints/        round-000012.safetensors; the newest ones are kept
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

import contextlib
import datetime
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedmx.run import lock
from fedmx.run.checkpoint import Checkpoint, checkpoints_in, read_checkpoint, write_checkpoint
from fedmx.run.checksum import check_file
from fedmx.run.durable import TEMPORARY_PREFIX, sync_folder, write_bytes_durably
from fedmx.run.ending import Ending, Status, read_ending, write_ending
from fedmx.run.errors import CheckpointError, DamagedError, RunError
from fedmx.run.identity import FORMAT, Identity, digests_of, new_folder
from fedmx.run.json_lines import JsonLines, plain

EXPERIMENT = "experiment.yaml"

log = logging.getLogger("fedmx.run")


class RunFolder:
    """A run folder. Make it with `create` or `open`; hold its `lock` while you write to it.

    Attributes:
        path: the folder.
        experiment_yaml: the experiment with all defaults.
        facts: what `run.json` says: versions, seed, mode and more.
    """

    def __init__(self, path: Path, experiment_yaml: str, identity: Identity):
        self.path = path
        self.experiment_yaml = experiment_yaml
        self.facts = identity.facts
        self._identity = identity
        self._rounds = JsonLines(path / "rounds.jsonl", identity.checked)
        self._clients = JsonLines(path / "clients.jsonl", identity.checked)
        self._damaged_files: dict[str, None] = {}
        self._told: set[str] = set()

    @property
    def name(self) -> str:
        """The folder's name, time included."""
        return self.path.name

    @property
    def checkpoints_path(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def checkpoint_path(self, round: int) -> Path:
        """Return the file of a round's checkpoint."""
        return self.checkpoints_path / f"round-{round:06d}.safetensors"

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
    def live_path(self) -> Path:
        """The file that a server renews while it runs: who is there, and who is waited for."""
        return self.path / "live.json"

    @property
    def process(self) -> int | None:
        """The id of the process that works in the folder; None: none does."""
        return lock.holder(self.path / "lock")

    @property
    def report_path(self) -> Path:
        """The file of the report; it exists when the run has ended."""
        return self.path / "report.html"

    @classmethod
    def create(
        cls,
        parent: str | Path,
        name: str,
        experiment_yaml: str,
        facts: Mapping[str, Any],
        files: Mapping[str, bytes] | None = None,
    ) -> RunFolder:
        """Make the folder ``parent/NAME-YYYYmmdd-HHMMSS`` of a new run.

        If the folder exists, the name gets ``-2``, ``-3`` and so on.

        Args:
            parent: the folder of all runs; it is made if it does not exist.
            name: the experiment's name.
            experiment_yaml: the experiment with all defaults.
            facts: values that JSON can hold; the time ``started`` is added if it is missing.
            files: further files of the folder, by name.

        Raises:
            RunError: the folder cannot be made.
        """
        now = datetime.datetime.now().astimezone()
        all_facts = plain({"started": now.isoformat(timespec="seconds"), **facts}, "facts")
        all_files = {EXPERIMENT: experiment_yaml.encode(), **(files or {})}
        try:
            Path(parent).mkdir(parents=True, exist_ok=True)
            path = new_folder(Path(parent), name, f"{now:%Y%m%d-%H%M%S}")
            (path / "checkpoints").mkdir()
            (path / "events").mkdir()
            for file, content in all_files.items():
                write_bytes_durably(path / file, content)
            identity = Identity(all_facts, digests_of(path, all_files))
            identity.write(path)
            sync_folder(path.parent)
        except OSError as error:
            raise RunError(
                f"{parent}: cannot make a run folder ({error.strerror}); "
                "name another one in run.folder"
            ) from None
        return cls(path, experiment_yaml, identity)

    @classmethod
    def open(cls, path: str | Path, *, salvage: bool = False) -> RunFolder:
        """Open an existing run folder.

        Args:
            path: the folder.
            salvage: go on if run.json or experiment.yaml is damaged; see `damage`. Without a sound
                run.json, there are no facts.

        Raises:
            RunError: it is not a run folder, is incomplete or damaged, or a newer fedmx wrote it.
        """
        path = Path(path)
        if not path.is_dir():
            what = "is a file, not a run folder" if path.exists() else "there is no such folder"
            raise RunError(f"{path}: {what}; give the folder of a run, as in runs/NAME-DATE-TIME")
        damaged = []
        try:
            identity = Identity.read(path)
        except DamagedError as error:
            if not salvage:
                raise RunError(f"{error}; restore the file, or start a new run") from None
            identity = Identity({})
            damaged.append(str(error))
        source = path / EXPERIMENT
        try:
            text = source.read_text("utf-8", "replace" if salvage else "strict")
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{source}: cannot read it ({error}); the run is incomplete") from None
        if not identity.has(source):
            problem = f"{source}: this is not the experiment that the run began with"
            if not salvage:
                raise RunError(f"{problem}; restore the file, or start a new run")
            damaged.append(problem)
        folder = cls(path, text, identity)
        folder._note(*damaged)
        return folder

    @property
    def damage(self) -> tuple[str, ...]:
        """One line for each damaged file, or line of one, that was met until now."""
        lines = (
            f"{records.path}:{number}: the line is damaged; it is left out"
            for records in (self._rounds, self._clients)
            for number in records.damaged
        )
        return (*self._damaged_files, *lines)

    def check(self, path: Path) -> None:
        """Check a file of the folder, such as `model_path`, by the SHA-256 that was recorded of it.

        Raises:
            RunError: its content is another one, or it cannot be read.
        """
        recorded = {**self._identity.files, **self._ending().get("files", {})}
        check_file(path, recorded.get(path.name))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that holds the folder for this process.

        The lock ends with the process.

        Raises:
            RunError: another process holds it; the text has the process id.
        """
        return lock.hold(self.path / "lock")

    # Records

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Append a round to rounds.jsonl, whole or not at all; NaN and infinities become null.

        Raises:
            RunError: it cannot be written.
        """
        self._rounds.append([record])

    def append_clients(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append the records of a round's clients to clients.jsonl, all or none of them.

        Raises:
            RunError: they cannot be written.
        """
        self._clients.append(records)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records of all rounds, in order; damaged ones are left out, see `damage`."""
        records = list(self._rounds.read())
        self._note()
        return records

    def clients(self, round: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of clients, in order: of one round, or of all; see also `rounds`."""
        for record in self._clients.read():
            if round is None or record.get("round") == round:
                yield record
        self._note()

    # Checkpoints

    def save_checkpoint(self, round: int, state: Mapping[Any, Any], keep: int = 5) -> Path:
        """Write a checkpoint, and remove all but the newest.

        The records up to this round reach the disk first.

        Args:
            round: the last round that the state contains.
            state: a state tree; see `fedmx.run.state_tree.encode`.
            keep: how many checkpoints to keep, 1 or more.

        Returns:
            The checkpoint's file.

        Raises:
            CheckpointError: it cannot be written; the older checkpoints are unchanged.
        """
        if keep < 1:
            raise CheckpointError(f"keep must be at least 1, not {keep}")
        path = self.checkpoint_path(round)
        try:
            self._rounds.sync()
            self._clients.sync()
            self.checkpoints_path.mkdir(exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: cannot write ({error.strerror}); free disk space"
            ) from None
        write_checkpoint(path, round, state)
        for number, old in checkpoints_in(self.checkpoints_path)[keep:]:
            if number != round:
                old.unlink(missing_ok=True)
        self._clean()
        return path

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

    @property
    def checkpoint_rounds(self) -> list[int]:
        """The rounds of which there are checkpoints, the newest first."""
        return [number for number, _ in checkpoints_in(self.checkpoints_path)]

    def checkpoint_before(self, round: int) -> Checkpoint | None:
        """Return the newest whole checkpoint of an earlier round; None: there is none."""
        for number, path in checkpoints_in(self.checkpoints_path):
            if number < round:
                with contextlib.suppress(CheckpointError):
                    return read_checkpoint(path)
        return None

    def truncate_after(self, round: int) -> None:
        """Remove all that came after a round: records, checkpoints, unfinished lines, the ending.

        Call it when a run resumes from the checkpoint of that round. A folder of an earlier version
        gets the checksums of this one.

        Raises:
            RunError: the records cannot be written.
        """
        for records in (self._rounds, self._clients):
            records.keep(
                lambda record: isinstance(record.get("round"), int) and record["round"] <= round
            )
        for number, path in checkpoints_in(self.checkpoints_path):
            if number > round:
                path.unlink(missing_ok=True)
        self._clean()
        (self.path / "status.json").unlink(missing_ok=True)
        self._damaged_files.clear()
        if self._identity.format < FORMAT:
            kept = [one.name for one in (self.path / EXPERIMENT, self.words_path) if one.exists()]
            self._identity = Identity(self.facts, digests_of(self.path, kept))
            self._identity.write(self.path)

    # The ending

    def finish(self, status: Ending, reason: str = "") -> None:
        """Write how the run ended, and why, with the SHA-256 of the final weights.

        Raises:
            RunError: there is no such ending, or it cannot be written.
        """
        model = (self.model_path.name,) if self.model_path.exists() else ()
        write_ending(self.path / "status.json", status, reason, digests_of(self.path, model))

    @property
    def status(self) -> Status:
        """How the run ended; ``interrupted`` if its process ended before it did."""
        recorded: Ending | None = self._ending().get("status")
        if recorded:
            return recorded
        return "running" if lock.holder(self.path / "lock") else "interrupted"

    @property
    def reason(self) -> str:
        """Why the run ended, in one line; empty if no reason was recorded."""
        ending = self._ending()
        if not ending.get("status") and self.status == "interrupted":
            return str(ending.get("reason", "its process ended before the run did"))
        return str(ending.get("reason", ""))

    def _ending(self) -> dict[str, Any]:
        try:
            return read_ending(self.path / "status.json", self._identity.checked)
        except DamagedError as error:
            self._note(str(error))
            return {"reason": "it is not known how the run ended: status.json is damaged"}

    def _note(self, *damaged: str) -> None:
        """Keep what is damaged, and log each damage once."""
        self._damaged_files.update(dict.fromkeys(damaged))
        for text in self.damage:
            if text not in self._told:
                self._told.add(text)
                log.warning("%s", text)

    def _clean(self) -> None:
        """Remove the temporary files that a killed process left; those of safetensors, too."""
        folders = {
            self.path: TEMPORARY_PREFIX,
            self.assets_path: TEMPORARY_PREFIX,
            self.checkpoints_path: ".",
        }
        for folder, pattern in folders.items():
            for path in folder.glob(f"{pattern}*"):
                path.unlink(missing_ok=True)
