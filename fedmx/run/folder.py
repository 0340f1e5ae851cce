"""A run folder: how it is made, opened, resumed from its checkpoints, and ended.

::

    NAME-20260131-093000/
      run.json            format, facts (versions, seed, mode, ...), SHA-256 of the initial files
      experiment.yaml     the experiment with all defaults
      status.json         how the run ended, and why
      rounds.jsonl        one object for each round
      clients.jsonl       one object for each client and round
      evaluations.jsonl   one object for each evaluation on a client's own samples, if there is any
      journal.jsonl        one object for each round: what it was told, and what it answered
      checkpoints/        round-000012.safetensors; the newest are kept, and others if asked for
      events/             TensorBoard's event files
      model.safetensors   the final weights
      start.safetensors   the initial weights, if the experiment names a file of them
      labels.json         of a simulation: the samples of some clients by label, if it has labels
      words.json          the vocabulary of the data's tokens, if the model uses it
      assets/             of a server: NAME.safetensors, the files that every client receives
      report.html         the report
      live.json           of a server: its current or last status; rewritten every second
      operator.json       of a server: what its operator has said, if anything
      control.sock        of a running server: where `fedmx ctl` reaches it
      released.jsonl      of a private server: each model that may have left it; never truncated
      secret.key          of a server: the key of its draws that nobody may foresee; never packed
      lock                the process that runs it holds this file

Each record and each document has a checksum. Damaged parts are named; the rest is read.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmx.display import card
from fedmx.run import lock
from fedmx.run.checkpoint import Checkpoint, Keep, checkpoints_in, read_checkpoint, write_checkpoint
from fedmx.run.durable import (
    PRIVATE_FOLDER,
    TEMPORARY_PREFIX,
    CheckpointError,
    DamagedError,
    RunError,
    advice_on,
    cannot_write,
    check_file,
    write_bytes_durably,
)
from fedmx.run.identity import (
    Ending,
    Identity,
    Status,
    digests_of,
    new_folder,
    read_ending,
    write_ending,
)
from fedmx.run.records import RunRecords, plain
from fedmx.run.secret_file import SECRET, kept_key, read_key
from layers.logic.secrets import Secret

if TYPE_CHECKING:
    from fedmx.experiment import Experiment

EXPERIMENT, LABELS = "experiment.yaml", "labels.json"


class RunFolder(RunRecords):
    """A run folder. Make it with `create` or `open`; hold its `lock` while you write to it.

    Attributes:
        path: the folder.
        name: the folder's name, which ends with the time at which the run started.
        experiment_yaml: the experiment with all defaults.
        facts: the facts in `run.json`: versions, seed, mode and more.
        events_path: the folder of TensorBoard's event files, for ``tensorboard --logdir``.
        model_path: the file of the final weights; it exists when the run has ended.
        start_path: the file of the initial weights, if `compute.start` named one.
        labels_path: the file of some clients' samples by label, of a simulation with labels.
        words_path: the file of the vocabulary of the data's tokens, if the model uses it.
        assets_path: the folder of the files that a server sends to every client.
        journal_path: the journals of the rounds.
        live_path: the status file that a server rewrites while it runs.
        report_path: the file of the report; it exists when the run has ended, outside of a sweep.
        checkpoints_path: the folder of the checkpoints.
    """

    def __init__(self, path: Path, experiment_yaml: str, identity: Identity):
        super().__init__(path)
        self.name = path.name
        self.experiment_yaml = experiment_yaml
        self.facts = identity.facts
        self.events_path = path / "events"
        self.model_path = path / "model.safetensors"
        self.start_path = path / "start.safetensors"
        self.labels_path = path / LABELS
        self.words_path = path / "words.json"
        self.assets_path = path / "assets"
        self.journal_path = path / "journal.jsonl"
        self.live_path = path / "live.json"
        self.report_path = path / "report.html"
        self.checkpoints_path = path / "checkpoints"
        self._lock_path = path / "lock"
        self._status_path = path / "status.json"
        self._identity = identity

    def __repr__(self) -> str:
        return f"<RunFolder {str(self.path)!r}: {self.status}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from fedmx.quantities import metrics_in  # not at the top: most readers need no layers

        rounds, metric = self.rounds(), metrics_in(self.facts)[0]
        measured = [one[metric.key] for one in rounds if one.get(metric.key) is not None]
        show = "{:.2%}" if metric.unit == "share" else "{:.4g}"
        text = f"{show}, at best {show}"
        rows: list[tuple[str, object]] = [
            ("status", self.status),
            ("why", self.reason or None),
            ("rounds", rounds[-1]["round"] if rounds else 0),
            (metric.words, text.format(measured[-1], metric.best(measured)) if measured else None),
            ("report", self.report_path if self.report_path.exists() else None),
            ("damaged", "; ".join(self.damage) or None),
        ]
        return card(f"Run {self.path}", rows, ("all keys", self.experiment_yaml))

    @property
    def forked_after(self) -> int:
        """The last round that a fork shares with its parent; 0: this run is no fork."""
        fork = self.facts.get("fork")
        return int(fork["round"]) if isinstance(fork, dict) else 0

    @property
    def modules_path(self) -> Path | None:
        """The folder of the experiment's own modules; None: they are installed.

        A relative path in run.json, as in an unpacked run, starts at the run folder.
        """
        modules = self.facts.get("modules")
        return (self.path / modules).absolute() if isinstance(modules, str) else None

    def experiment(
        self, overrides: Sequence[str] = (), *, modules: Collection[str] | None = ()
    ) -> Experiment:
        """Return the experiment of the run.

        Args:
            overrides: ``PATH=VALUE`` texts, as after ``--set``.
            modules: the modules whose code it may name; None: all.

        Raises:
            ExperimentError: it cannot be read, or an override is wrong.
        """
        from fedmx.experiment import Experiment  # not at the top: most readers need no schema

        source = str(self.path / EXPERIMENT)
        return Experiment.parse(
            self.experiment_yaml, source, overrides, folder=self.modules_path, modules=modules
        )

    def check_experiment(self, experiment: Experiment) -> None:
        """Check that an experiment gives the result of the run.

        Raises:
            RunError: it gives another.
        """
        if experiment.digest() != self.facts.get("digest"):
            raise RunError(
                f"{self.path / EXPERIMENT}: this is not the experiment that the run began with; "
                "restore the file, or start a new run"
            )

    def fork_lost(self, what: str) -> RunError:
        """Return the error of a fork whose initial state is lost."""
        fork = self.facts["fork"]
        return RunError(
            f"{self.path}: {what} gone or damaged; make the fork again from "
            f"{fork.get('folder', 'the run')}, after round {self.forked_after}"
        )

    def check_begin(self, round: int) -> None:
        """Check that a state to resume from is not from before this run's fork.

        Args:
            round: the last round in the state; 0: the initial model.

        Raises:
            RunError: the run is a fork that begins later: its first checkpoint is lost.
        """
        if round < self.forked_after:
            raise self.fork_lost("the checkpoint that the fork begins with is")

    @property
    def secret(self) -> Secret:
        """The secret of the server that made the folder.

        A draw raises an error where the file is gone, as in a copy without it.
        """
        path = self.path / SECRET
        if path.exists():
            return Secret(lambda: read_key(path))
        return Secret.elsewhere(f"its server ({path})")

    def draw_secret(self) -> None:
        """Draw the secret of a server that begins, unless the folder has one.

        Raises:
            RunError: it cannot be written.
        """
        kept_key(self.path / SECRET)

    def has_data(self, sha256: str) -> bool:
        """Return whether the run began with these data; True if its facts do not say it."""
        return bool(self.facts.get("data_sha256", sha256) == sha256)

    def check_data(self, name: str, sha256: str) -> None:
        """Check that a data set is the run's own.

        Raises:
            RunError: it has other samples.
        """
        if not self.has_data(sha256):
            raise RunError(
                f"{self.path}: {name} has other samples than when the run began; restore its "
                "files, or start a new run"
            )

    def other_code(self, code: Mapping[str, str]) -> list[str]:
        """Return the files of the user's own code that changed since the run began.

        Args:
            code: the current SHA-256 of each file (see `own_code`); files unknown to the run are
                ignored.
        """
        before = self.facts.get("code", {})
        return [name for name, sha256 in code.items() if before.get(name, sha256) != sha256]

    def note_resumed(self, differences: Sequence[str]) -> None:
        """Keep in run.json with which other versions the run goes on; hold the lock.

        Raises:
            RunError: it cannot be written.
        """
        resumed = [one for one in self.facts.get("resumed", ()) if isinstance(one, list)]
        if [*differences] in resumed:
            return
        self.facts["resumed"] = [*resumed, [*differences]]
        try:
            self._identity.write(self.path)
        except OSError as error:
            raise RunError(cannot_write(self.path, error)) from None

    @property
    def process(self) -> int | None:
        """The id of the process that holds the folder; None: no process does."""
        return lock.holder(self._lock_path)

    @classmethod
    def create(
        cls,
        parent: str | Path,
        name: str,
        experiment_yaml: str,
        facts: Mapping[str, Any],
        files: Mapping[str, bytes] | None = None,
        fill: Callable[[RunFolder], None] | None = None,
    ) -> RunFolder:
        """Make the folder ``parent/NAME-YYYYmmdd-HHMMSS`` of a new run.

        If the folder exists, the name gets ``-2``, ``-3`` and so on. The folder appears under its
        name when it is complete; an interruption before that leaves nothing.

        Args:
            parent: the folder of all runs; it is made if it does not exist.
            name: the experiment's name.
            experiment_yaml: the experiment with all defaults.
            facts: values that JSON can hold; ``run``, a random id, and the time ``started`` are
                added if they are missing.
            files: further files of the folder, by name.
            fill: writes the run's initial content, such as records of earlier rounds. It gets the
                folder under the name that it has until it is complete.

        Raises:
            RunError: the folder cannot be made.
        """
        now = datetime.datetime.now().astimezone()
        own = {"run": uuid.uuid4().hex, "started": now.isoformat(timespec="seconds")}
        all_facts = plain({**own, **facts}, "facts")
        all_files = {EXPERIMENT: experiment_yaml.encode(), **(files or {})}
        digests = {file: hashlib.sha256(content).hexdigest() for file, content in all_files.items()}
        identity = Identity(all_facts, digests)

        def make(path: Path) -> None:
            (path / "checkpoints").mkdir(PRIVATE_FOLDER)
            (path / "events").mkdir(PRIVATE_FOLDER)
            for file, content in all_files.items():
                write_bytes_durably(path / file, content, private=True)
            if fill is not None:
                fill(cls(path, experiment_yaml, identity))
            identity.write(path)

        try:
            Path(parent).mkdir(parents=True, exist_ok=True)
            path = new_folder(Path(parent), name, f"{now:%Y%m%d-%H%M%S}", make)
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
            salvage: open the folder even if run.json or experiment.yaml is damaged; see `damage`.
                Without an intact run.json, there are no facts.

        Raises:
            RunError: it is not a run folder, is damaged, or a newer fedmx wrote it.
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
            reason = error.strerror if isinstance(error, OSError) else error.reason
            raise RunError(
                f"{source}: cannot read it ({reason}); restore it from a copy, or start a new run"
            ) from None
        if not identity.has(source):
            problem = f"{source}: this is not the experiment that the run began with"
            if not salvage:
                raise RunError(f"{problem}; restore the file, or start a new run")
            damaged.append(problem)
        folder = cls(path, text, identity)
        folder._note(*damaged)
        return folder

    def check(self, path: Path) -> None:
        """Check a file of the folder, such as `model_path`, against its recorded SHA-256.

        Raises:
            RunError: it has other content, or cannot be read.
        """
        recorded = {**self._identity.files, **self._ending().get("files", {})}
        check_file(path, recorded.get(path.name))

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that holds the folder for this process.

        The lock ends with the process.

        Raises:
            RunError: another process holds it; the text has the process id.
        """
        return lock.hold(self._lock_path)

    def checkpoint_path(self, round: int) -> Path:
        """Return the file of a round's checkpoint."""
        return self.checkpoints_path / f"round-{round:06d}.safetensors"

    @property
    def checkpoint_rounds(self) -> list[int]:
        """The rounds that have a checkpoint, the newest first."""
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

    def save_checkpoint(
        self, round: int, state: Mapping[Any, Any], keep: Keep | None = None
    ) -> Path:
        """Write a checkpoint, and remove superfluous ones.

        The records up to this round reach the disk first.

        Args:
            round: the last round that the state contains.
            state: a state tree; see `fedmx.run.checkpoint.encode`.
            keep: which checkpoints to keep; None: the newest five.

        Returns:
            The checkpoint's file.

        Raises:
            CheckpointError: it cannot be written; the older checkpoints are unchanged.
            RunError: a superfluous one cannot be removed.
        """
        path = self.checkpoint_path(round)
        try:
            for records in self._records:
                records.sync()
            self.checkpoints_path.mkdir(PRIVATE_FOLDER, exist_ok=True)
        except OSError as error:
            raise CheckpointError(cannot_write(self.path, error)) from None
        write_checkpoint(path, round, state)
        for number in (keep or Keep()).superfluous(self.checkpoint_rounds):
            if number not in (round, self.forked_after):  # that one cannot be made again
                _remove(self.checkpoint_path(number))
        self._clean()
        return path

    def truncate_after(self, round: int) -> None:
        """Remove everything after a round: records, checkpoints, unfinished lines, the ending.

        Call it when a run resumes from the checkpoint of that round.

        Raises:
            RunError: the records cannot be written, or a file cannot be removed.
        """
        self._remove_records(later_than=round)
        for number, path in checkpoints_in(self.checkpoints_path):
            if number > round:
                _remove(path)
        self._clean()
        _remove(self._status_path)
        self._damaged_files.clear()

    def finish(self, status: Ending, reason: str = "") -> None:
        """Write the run's ending, its reason, and the SHA-256 of the final weights.

        Raises:
            RunError: there is no such ending, or it cannot be written.
        """
        model = (self.model_path.name,) if self.model_path.exists() else ()
        write_ending(self._status_path, status, reason, digests_of(self.path, model))

    @property
    def status(self) -> Status:
        """The run's ending or state; ``interrupted`` if its process ended before the run."""
        recorded: Ending | None = self._ending().get("status")
        if recorded:
            return recorded
        return "running" if lock.holder(self._lock_path) else "interrupted"

    @property
    def reason(self) -> str:
        """Why the run ended, in one line; empty if no reason was recorded."""
        ending = self._ending()
        if not ending.get("status") and self.status == "interrupted":
            return str(ending.get("reason", "its process ended before the run did"))
        return " ".join(str(ending.get("reason", "")).split())

    def _ending(self) -> dict[str, Any]:
        try:
            return read_ending(self._status_path)
        except DamagedError as error:
            self._note(str(error))
            return {"reason": "it is not known how the run ended: status.json is damaged"}

    def _clean(self) -> None:
        """Remove the temporary files of a killed process, and those of safetensors."""
        folders = {
            self.path: TEMPORARY_PREFIX,
            self.assets_path: TEMPORARY_PREFIX,
            self.checkpoints_path: ".",
        }
        for folder, pattern in folders.items():
            for path in folder.glob(f"{pattern}*"):
                _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, which may be gone already.

    Raises:
        RunError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"{path}: cannot remove ({error.strerror}){advice_on(error)}") from None


def kept_start(folder: RunFolder) -> Path | None:
    """Check and return a run folder's file of the initial weights.

    Returns:
        The file; None if the run began from its seed.

    Raises:
        RunError: the file is missing, or is not the run's own.
    """
    facts = folder.facts.get("start")
    if not isinstance(facts, dict):
        return None
    path = folder.start_path
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RunError(
            f"{path}: cannot read it ({error.strerror}); restore it, or start a new run"
        ) from None
    if digest != facts.get("kept_sha256"):
        raise RunError(
            f"{path}: these are not the weights that the run began from; "
            "restore the file, or start a new run"
        )
    return path
