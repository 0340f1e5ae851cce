"""``fedmx runs``: the runs and sweeps in a folder."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmx.cli.terminal.options import AsJson

NARROW = 72  # columns below which there is no age; a run's name ends with its time
WIDE = 100  # columns from which the experiment has a column of its own; a run's name begins with it


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The folder of the runs, or of a sweep.")
    ] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder."""
    from fedmx.run import RunError

    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise RunError(f"{folder}: {what}; give the folder of the runs (run.folder)")
    if (folder / "run.json").is_file():
        raise RunError(f"{folder}: is a run itself; give the folder that it is in: {folder.parent}")
    found = sorted(rows(folder), key=lambda row: (row["started"] or "", row["run"]))
    if as_json:
        typer.echo(json.dumps(found))
    elif found:
        _show(found)
    else:
        typer.echo(f"{folder}: no runs", err=True)


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what is known of each run folder, and of each sweep folder, in a folder."""
    for path in sorted(folder.iterdir()):
        if (path / "run.json").is_file():
            yield {"kind": "run", "run": str(path), **_of_run(path)}
        elif (path / "sweep.json").is_file():
            yield {"kind": "sweep", "run": str(path), **_of_sweep(path)}


def _of_run(path: Path) -> dict[str, Any]:
    from fedmx.report.summary import best_of, evaluated, points_of, read_settings
    from fedmx.run import RunError, RunFolder

    try:
        folder = RunFolder.open(path, salvage=True)
        points = points_of(folder.rounds())
    except RunError as error:
        return _row(state="damaged", reason=str(error))
    settings, best, last = read_settings(folder.experiment_yaml), best_of(points), evaluated(points)
    return _row(
        experiment=settings.get("name"),
        state=folder.status,
        reason=folder.reason,
        round=points[-1].round if points else 0,
        rounds=settings.get("rounds"),
        best_accuracy=best.accuracy if best else None,
        best_round=best.round if best else None,
        accuracy=last[-1].accuracy if last else None,
        loss=last[-1].loss if last else None,
        started=folder.facts.get("started"),
        mode=folder.facts.get("mode"),
        seed=folder.facts.get("seed"),
    )


def _of_sweep(path: Path) -> dict[str, Any]:
    """Return a sweep's row; its state says how many of its runs are done."""
    from fedmx.errors import FedmxError
    from fedmx.report.summary import read_settings
    from fedmx.sweeps.folder import SweepFolder
    from fedmx.sweeps.result import SweepResult

    try:
        folder = SweepFolder.open(path)
        result = SweepResult.of(folder)
        text = folder.experiment_path.read_text("utf-8")
    except (FedmxError, OSError) as error:
        return _row(state="damaged", reason=str(error))
    done = sum(one.state == "done" for one in result.states)
    best = [row["best_accuracy"] for row in result.table() if row["best_accuracy"] is not None]
    state = "running" if folder.process else "done" if result.done else "interrupted"
    return _row(
        experiment=read_settings(text).get("name"),
        state="failed" if result.failed and state != "running" else state,
        reason=f"{done} of {len(result.states)} runs are done, {len(result.failed)} failed",
        best_accuracy=max(best, default=None),
        started=folder.manifest.started,
        runs=len(result.states),
        runs_done=done,
    )


def _row(**known: Any) -> dict[str, Any]:
    keys = (
        *("experiment", "state", "reason", "round", "rounds", "best_accuracy", "best_round"),
        *("accuracy", "loss", "started", "mode", "seed", "runs", "runs_done"),
    )
    row = {key: known.get(key) for key in keys}
    return {**row, "age_s": _age_s(row["started"])}


def _age_s(started: object) -> int | None:
    """Return how many seconds ago a time was."""
    try:
        moment = datetime.datetime.fromisoformat(str(started))
        return max(int((datetime.datetime.now().astimezone() - moment).total_seconds()), 0)
    except (ValueError, TypeError):
        return None


def _show(found: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from fedmx.cli.terminal.error_text import printable
    from fedmx.cli.terminal.tables import show_table
    from fedmx.report.quantities import NOTHING, percent

    columns = shutil.get_terminal_size().columns
    wide, narrow = columns >= WIDE, columns < NARROW
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    table.add_column("run", overflow="fold")
    if wide:
        table.add_column("experiment", overflow="fold")
    table.add_column("state")
    table.add_column("round", justify="right", no_wrap=True)
    table.add_column("best", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("age", justify="right", no_wrap=True)
    for row in found:
        known = row["round"] is not None
        rounds = f"{row['round']}/{row['rounds']}" if known else NOTHING
        if row["kind"] == "sweep" and row["runs"]:
            rounds = f"{row['runs_done']}/{row['runs']} runs"
        table.add_row(
            Text(printable(Path(row["run"]).name)),
            *([Text(printable(str(row["experiment"] or NOTHING)))] if wide else []),
            row["state"],
            rounds,
            percent(row["best_accuracy"]),
            *([] if narrow else [NOTHING if row["age_s"] is None else age(row["age_s"])]),
        )
    show_table(table)


def age(seconds: int) -> str:
    """Return an age in its largest unit: ``12 s``, ``5 min``, ``3 h`` or ``4 d``."""
    for limit, size, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86400:,} d"
