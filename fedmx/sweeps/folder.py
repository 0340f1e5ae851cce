"""The folder of a sweep: what is varied, and a run folder for each cell and seed.

::

    NAME-sweep-20260131-093000/
      sweep.json          axes, seeds, target, overrides; with a checksum, written last
      experiment.yaml     the experiment that is varied
      2-fedprox-0.1-s3-20260131-093012/     the run folder of cell 2 and seed 3, and so on
      logs/               the stderr of each run, a JSON object a line
      table.csv           one row for each cell and seed
      report.html         the page about all runs
      lock                the process that runs the sweep holds this file
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from fedmx.quantities import figures
from fedmx.report.summary import Curve, Point, curve_of
from fedmx.run import RunError, RunFolder, lock
from fedmx.run.durable import (
    DamagedError,
    read_document,
    write_document,
    write_text_durably,
)
from fedmx.run.identity import new_folder
from fedmx.sweeps.cells import Axis, Cell, CellRun, cells_of, runs_of

FILE = "sweep.json"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """The definition of a sweep.

    Attributes:
        axes: the settings that vary.
        seeds: of each cell's runs.
        overrides: the other overrides of the experiment, as after ``fedmx run --set``.
        modules: the folder of the experiment's own modules.
        target: the value of their metric to which rounds and bytes are counted; None: none.
        sha256: of experiment.yaml.
        started: when the sweep began.
    """

    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...]
    modules: str
    target: float | None
    sha256: str
    started: str


class SweepFolder:
    """A sweep folder. Use `create` or `open`; hold its `lock` while you run it.

    Attributes:
        path: the folder.
        manifest: the definition of the sweep.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @property
    def experiment_path(self) -> Path:
        """The file of the experiment that is varied."""
        return self.path / "experiment.yaml"

    @property
    def table_path(self) -> Path:
        """The file of the table, one row for each cell and seed."""
        return self.path / "table.csv"

    @property
    def report_path(self) -> Path:
        """The file of the page about all runs."""
        return self.path / "report.html"

    @property
    def cells(self) -> list[Cell]:
        """The cells, in the order of the axes."""
        return cells_of(self.manifest.axes)

    @property
    def runs(self) -> list[CellRun]:
        """The runs, in the order in which they start."""
        return runs_of(self.cells, self.manifest.seeds)

    @property
    def process(self) -> int | None:
        """The id of the process that runs the sweep; None: none."""
        return lock.holder(self.path / "lock")

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that locks the sweep for this process.

        Raises:
            RunError: another process holds it; the text has the process id.
        """
        return lock.hold(self.path / "lock")

    def log_path(self, run: CellRun) -> Path:
        """Return the file with the stderr of a run."""
        return self.path / "logs" / f"{run.name}.jsonl"

    def run_path(self, run: CellRun) -> Path | None:
        """Return the run folder of a run; None: it has no complete one yet."""
        found = [one.parent for one in self.path.glob(f"{run.name}-2*/run.json")]
        return max(found, default=None)

    @classmethod
    def is_one(cls, path: Path) -> bool:
        """Return whether a folder is a sweep folder."""
        return (path / FILE).is_file()

    @classmethod
    def create(
        cls,
        parent: Path,
        name: str,
        experiment_yaml: str,
        *,
        axes: Sequence[Axis],
        seeds: Sequence[int],
        overrides: Sequence[str],
        modules: Path,
        target: float | None,
    ) -> SweepFolder:
        """Make the folder ``parent/NAME-sweep-YYYYmmdd-HHMMSS``.

        Raises:
            RunError: it cannot be made.
        """
        now = datetime.datetime.now().astimezone()
        manifest = Manifest(
            axes=tuple(axes),
            seeds=tuple(seeds),
            overrides=tuple(overrides),
            modules=str(modules),
            target=target,
            sha256=_sha256(experiment_yaml),
            started=now.isoformat(timespec="seconds"),
        )

        def fill(path: Path) -> None:
            folder = cls(path, manifest)
            (path / "logs").mkdir()
            write_text_durably(folder.experiment_path, experiment_yaml)
            folder.save()

        try:
            parent.mkdir(parents=True, exist_ok=True)
            path = new_folder(parent, f"{name}-sweep", f"{now:%Y%m%d-%H%M%S}", fill)
        except OSError as error:
            raise RunError(
                f"{parent}: cannot make a sweep folder ({error.strerror}); "
                "name another one in run.folder"
            ) from None
        return cls(path, manifest)

    @classmethod
    def open(cls, path: Path) -> SweepFolder:
        """Open an existing sweep folder.

        Raises:
            RunError: it is not a sweep folder, is damaged, or is from a newer fedmx.
        """
        if not cls.is_one(path):
            raise RunError(f"{path}: not a sweep folder (it has no {FILE})")
        try:
            found, checked = read_document(path / FILE)
            if not checked:
                raise DamagedError(f"{path / FILE}: damaged (its checksum is missing)")
        except DamagedError as error:
            raise RunError(f"{error}; restore the file, or begin a new sweep") from None
        if found.get("format") != FORMAT:
            raise RunError(
                f"{path}: the sweep has format {found.get('format')}, this fedmx reads {FORMAT}; "
                "use the version that wrote it, or a newer one"
            )
        return cls(path, _manifest(found))

    def save(self) -> None:
        """Write sweep.json, whole or not at all.

        Raises:
            OSError: the disk refuses.
        """
        write_document(self.path / FILE, {"format": FORMAT, **asdict(self.manifest)})

    def check_experiment(self) -> None:
        """Check that experiment.yaml has not changed since the sweep began.

        Raises:
            RunError: it has, or cannot be read.
        """
        try:
            text = self.experiment_path.read_text("utf-8")
        except OSError as error:
            raise RunError(f"{self.experiment_path}: cannot read it ({error.strerror})") from None
        except UnicodeDecodeError as error:
            raise RunError(f"{self.experiment_path}: damaged ({error.reason})") from None
        if _sha256(text) != self.manifest.sha256:
            raise RunError(
                f"{self.experiment_path}: the experiment has changed since the sweep began; "
                "restore the file, or begin a new sweep"
            )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _manifest(found: Mapping[str, Any]) -> Manifest:
    values = {one.name: found[one.name] for one in fields(Manifest)}
    lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    axes = tuple(Axis(axis["path"], tuple(axis["values"])) for axis in found["axes"])
    return Manifest(**{**values, **lists, "axes": axes})


State = Literal["waiting", "running", "interrupted", "failed", "done"]
INTERRUPTED = 130
"""The exit code of a command that a signal ended in an orderly way."""

_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RunState(Curve):
    """The state of one run.

    Its points are only those with a new best value of a metric, and the last ones, so that a sweep
    can have many runs.

    Attributes:
        run: the cell and the seed.
        state: *waiting* has not begun; *interrupted* and *failed* can be resumed.
        reason: why it failed, or how it ended.
        folder: the run folder; None: not there yet.
    """

    run: CellRun
    state: State
    reason: str = ""
    folder: Path | None = None

    @property
    def failed_at_once(self) -> bool:
        """Whether it failed before it had a run folder, as the cell's other seeds would."""
        return self.state == "failed" and self.folder is None

    def row(self, target: float | None) -> dict[str, Any]:
        """Return the row of the table; None: not measured or not reached.

        Args:
            target: the value of its metric to which rounds and bytes are counted; None: none.
        """
        own = {**self.run.cell.settings, "seed": self.run.seed, "state": self.state}
        found = {key: value for key, value in figures(self, target).items() if key not in own}
        return {
            **own,
            **found,
            "run": self.folder.name if self.folder else None,
            "reason": self.reason,
        }


def state_of(sweep: SweepFolder, run: CellRun) -> RunState:
    """Return the state of a run; a damaged run folder has failed."""
    path = sweep.run_path(run)
    failure = failure_in(sweep.log_path(run))
    if path is None:
        return RunState(
            run=run, state="waiting" if failure is None else "failed", reason=failure or ""
        )
    try:
        folder = RunFolder.open(path)
        curve = curve_of(folder)
        points = _needed(curve)
        status, reason = folder.status, folder.reason
    except RunError as error:
        return RunState(run=run, state="failed", reason=str(error), folder=path)
    state: State = "done" if status == "done" else "interrupted"
    if status != "done" and folder.process is not None:
        state, reason = "running", ""
    elif status != "done" and failure is not None:
        state, reason = "failed", failure
    return RunState(
        points=points, metrics=curve.metrics, run=run, state=state, reason=reason, folder=path
    )


def _needed(curve: Curve) -> list[Point]:
    """Return the points that a table needs for any target."""
    kept = {one.round: one for one in (*curve.evaluated[-1:], *curve.points[-1:])}
    for metric in curve.metrics:
        best: float | None = None
        for one in curve.points:
            value = one.value(metric)
            if value is not None and (best is None or metric.is_better(value, best)):
                best, kept[one.round] = value, one
    return [kept[round] for round in sorted(kept)]


def failure_in(log: Path) -> str | None:
    """Return the error in the last line of a run's log; None: the log does not end with one."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
        last = json.loads(lines[-1]) if lines else {}
    except FileNotFoundError:
        return None
    except ValueError:
        return None  # an incomplete line of a killed process
    if not isinstance(last, dict) or last.get("event") != "error":
        return None
    code = last.get("fields", {}).get("code")
    return None if code == INTERRUPTED else str(last.get("text", ""))
