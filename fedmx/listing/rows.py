"""A row for each run and each sweep in a folder."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedmx.display import same_keys
from fedmx.errors import FedmxError
from fedmx.quantities import OF_CLASSES, OF_RUN, Quantity
from fedmx.report.formats import NOTHING, value_text
from fedmx.report.groups import deciding, differing, word
from fedmx.report.summary import ABSENT, curve_of, document_of, read_settings
from fedmx.run import RunError, RunFolder
from fedmx.sweeps.folder import SweepFolder
from fedmx.sweeps.result import SweepResult


@dataclass(frozen=True)
class Listed:
    """A run or a sweep.

    Attributes:
        row: what `fedmx runs --json` prints; its settings are those that differ, as texts.
        metric: the one that stands for the model.
        values: of that metric, evaluation by evaluation; of a sweep none.
    """

    row: dict[str, Any]
    metric: Quantity = OF_CLASSES[0]
    values: Sequence[float] = ()

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.row["run"])

    @property
    def rounds(self) -> str:
        """How many of its rounds, versions or runs are done."""
        row = self.row
        if row["kind"] == "sweep" and row["runs"]:
            return f"{row['runs_done']}/{row['runs']} runs"
        if row["rounds_done"] is None:
            return NOTHING
        unit = "" if row["in_flight"] is None else " versions"
        return f"{row['rounds_done']}/{row['rounds']}{unit}"

    @property
    def best(self) -> str:
        """The best value of the metric."""
        best = self.row["best"]
        return NOTHING if best is None else value_text(self.metric, best)

    @property
    def words(self) -> Mapping[str, str]:
        """A word for each setting that differs, by its path: those of the logic first."""
        given = (self.row["settings"] or {}).items()
        given = sorted(given, key=lambda one: (one[0] == "seed", not one[0].startswith("logic.")))
        return {path: word(path, text) for path, text in given}


def listed(folder: Path) -> list[Listed]:
    """Return the runs and sweeps in a folder, the oldest first; all rows have the same keys.

    Raises:
        RunError: there is no such folder, or it is a run itself.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise RunError(f"{folder}: {what}; give the folder of the runs (run.folder)")
    if (folder / "run.json").is_file():
        raise RunError(f"{folder}: is a run itself; give the folder that it is in: {folder.parent}")
    found = [*_found(folder)]
    rows = same_keys([one.row for one in found])
    found = [replace(one, row=row) for one, row in zip(found, rows, strict=True)]
    found.sort(key=lambda one: (str(one.row["started"] or ""), one.row["run"]))
    _keep_differing([one.row for one in found], of_one=SweepFolder.is_one(folder))
    return found


def _found(folder: Path) -> Iterator[Listed]:
    for path in sorted(folder.iterdir()):
        kind = "run" if (path / "run.json").is_file() else "sweep"
        if kind == "run" or SweepFolder.is_one(path):
            try:
                yield _of_run(path) if kind == "run" else _of_sweep(path)
            except (FedmxError, OSError) as error:
                reason = str(error)
            except Exception as error:  # noqa: BLE001 - the others are worth more than this one
                reason = f"{path}: cannot be read ({type(error).__name__}: {error})"
            else:
                continue
            yield Listed(_row(path, kind, state="damaged", reason=reason))


def _keep_differing(found: Sequence[dict[str, Any]], *, of_one: bool) -> None:
    """Keep only the settings in which runs of the same experiment differ, as texts.

    Args:
        found: the rows.
        of_one: whether all runs are of one experiment, whatever their names, as in a sweep.
    """
    same: dict[str | None, list[dict[str, Any]]] = {}
    for row in found:
        if row["settings"] is not None:
            same.setdefault(None if of_one else row["experiment"], []).append(row)
    for rows in same.values():
        for row, texts in zip(
            rows, differing([deciding(row["settings"]) for row in rows]), strict=True
        ):
            row["settings"] = {path: text for path, text in texts.items() if text != ABSENT}


def _of_run(path: Path) -> Listed:
    """Return a run.

    Raises:
        RunError: it cannot be read.
    """
    for name in ("experiment.yaml", "rounds.jsonl"):
        if (path / name).exists() and not (path / name).is_file():
            raise RunError(f"{path / name}: is not a file")
    folder = RunFolder.open(path, salvage=True)
    settings = read_settings(folder.experiment_yaml)
    curve = curve_of(folder)
    row = _row(
        path,
        "run",
        **document_of(folder, settings, curve),
        experiment=settings.get("name"),
        started=folder.facts.get("started"),
        mode=folder.facts.get("mode"),
        seed=folder.facts.get("seed"),
        settings=settings,
    )
    measured = (curve.value(point) for point in curve.points)
    return Listed(row, curve.metric, [value for value in measured if value is not None])


def _of_sweep(path: Path) -> Listed:
    """Return a sweep; its reason says how many of its runs are done.

    Raises:
        FedmxError: it cannot be read.
    """
    folder = SweepFolder.open(path)
    result = SweepResult.of(folder)
    text = folder.experiment_path.read_text("utf-8")
    done = sum(one.state == "done" for one in result.states)
    state = "running" if folder.process else "done" if result.done else "interrupted"
    row = _row(
        path,
        "sweep",
        experiment=read_settings(text).get("name"),
        state="failed" if result.failed and state != "running" else state,
        reason=f"{done} of {len(result.states)} runs are done, {len(result.failed)} failed",
        metric=result.metric.key,
        best=result.best,
        started=folder.manifest.started,
        runs=len(result.states),
        runs_done=done,
    )
    return Listed(row, result.metric)


def _row(path: Path, kind: str, **known: Any) -> dict[str, Any]:
    keys = (
        *("kind", "run", "experiment", "state", "reason", "rounds", *(one.key for one in OF_RUN)),
        *("in_flight", "started", "mode", "seed", "runs", "runs_done", "settings"),
    )
    row = {**dict.fromkeys(keys), **known, "kind": kind, "run": str(path)}
    return {**row, "age_s": _age_s(row["started"])}


def _age_s(started: object) -> int | None:
    """Return the age of a time, in seconds."""
    try:
        moment = datetime.datetime.fromisoformat(str(started))
        return max(int((datetime.datetime.now().astimezone() - moment).total_seconds()), 0)
    except (ValueError, TypeError):
        return None
