"""Several runs by the settings in which they differ: as tables, as frames, and as figures."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedmx.errors import FedmxError
from fedmx.report.curves import ALL_AXES, ALL_MEASURES, BY_CLIENT, plot
from fedmx.report.groups import (
    Group,
    common_client_target,
    common_target,
    compare_groups,
    grouped,
    seed_of,
)
from fedmx.report.paper import latex_table, write_figures, write_output
from fedmx.report.results import group_verdict, verdict
from fedmx.report.summary import ABSENT, Point, RunSummary, summarise
from fedmx.report.svg import PAPER
from fedmx.run import RunError, RunFolder

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Comparison:
    """Runs that are compared; those that differ in nothing but their seed are one group.

    Attributes:
        folders: of the runs, group by group.
        groups: the runs, in the same order.
        target: the accuracy, 0 to 1, to which rounds, bytes and time are counted; None: none.
        client_target: the same for the mean over clients.
    """

    folders: Sequence[RunFolder]
    groups: Sequence[Group]
    target: float | None = None
    client_target: float | None = None

    @classmethod
    def of(cls, folders: Sequence[RunFolder], target: float | None = None) -> Comparison:
        """Return the comparison of run folders.

        Args:
            folders: one or more.
            target: an accuracy, 0 to 1, on all test samples and in the mean over clients. None: the
                lowest ``stop.accuracy`` and the lowest ``stop.client_accuracy`` of the experiments.

        Raises:
            RunError: a run cannot be read, or there is none.
        """
        if not folders:
            raise RunError("a report needs at least one run; give the folder of one")
        if any(number > 1 for number in Counter(run.name for run in folders).values()):
            labels = [str(run.path) for run in folders]
        else:
            labels = [run.name for run in folders]
        runs = [summarise(run) for run in folders]
        groups = grouped(runs, labels)
        of_run = {id(run): folder for run, folder in zip(runs, folders, strict=True)}
        return cls(
            [of_run[id(run)] for group in groups for run in group.runs],
            groups,
            common_target(runs, target),
            common_client_target(runs, target),
        )

    @classmethod
    def read(
        cls, paths: Sequence[str | os.PathLike[str]], target: float | None = None
    ) -> Comparison:
        """Return the comparison of the runs in these folders; see `of`."""
        return cls.of([RunFolder.open(Path(path), salvage=True) for path in paths], target)

    @property
    def runs(self) -> list[RunSummary]:
        """The figures of all runs, group by group."""
        return [run for group in self.groups for run in group.runs]

    @property
    def names(self) -> list[str]:
        """A name for each run."""
        return [name for group in self.groups for name in group.names]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each run, with the same keys in all rows.

        Shares are from 0 to 1, sizes in bytes, times in seconds. What was not measured or not
        reached is None.
        """
        return run_rows(self.groups, self.folders, self.target)

    def curves(self) -> list[dict[str, Any]]:
        """Return one row for each run and round; units as in `table`, totals since the begin."""
        return curve_rows(self.groups)

    def to_pandas(self) -> pandas.DataFrame:
        """Return `table` as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        return _frame(self.table(), "table")

    def curves_to_pandas(self) -> pandas.DataFrame:
        """Return `curves` as a pandas frame.

        Raises:
            FedmxError: pandas is not installed.
        """
        return _frame(self.curves(), "curves")

    def plot(
        self, measure: str = "accuracy", against: str = "rounds", axes: Axes | None = None
    ) -> Axes:
        """Draw a line for each group, with its name at its end.

        Of several seeds, the line is the mean, and shaded is from the least to the largest.

        Args:
            measure: ``accuracy``, ``loss`` or ``accuracy by client``.
            against: ``rounds``, ``bytes``, ``time`` or ``virtual time``.
            axes: axes of matplotlib to draw on; None: those of a new figure of pyplot.

        Returns:
            The axes.

        Raises:
            FedmxError: there is no such measure or axis, or no run has values of it.
        """
        measures = {one.name.lower(): one for one in ALL_MEASURES}
        against_what = {one.name: one for one in ALL_AXES}
        for given, known in ((measure, measures), (against, against_what)):
            if given not in known:
                raise FedmxError(f"{given!r}: cannot be drawn; there are {', '.join(known)}")
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.subplots(layout="constrained")[1]
        chosen = measures[measure]
        target = self.client_target if chosen is BY_CLIENT else self.target
        if not plot(axes, self.groups, chosen, against_what[against], target, look=PAPER):
            raise FedmxError(f"no run has values of {measure} against {against}")
        return axes

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `table` as CSV; see `write_latex` for errors."""
        write_output(Path(path), csv_text(self.table()), "a table is CSV", (".csv",))

    def write_latex(self, path: str | os.PathLike[str]) -> None:
        """Write a table of the groups for LaTeX, with the rules of booktabs.

        Raises:
            FedmxError: the name ends otherwise, fedmx did not write the file that is there, or it
                cannot be written.
        """
        text = latex_table(self.groups, self.target)
        write_output(Path(path), text, "a table for LaTeX", (".tex",))

    def write_figures(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write each figure as PDF and SVG, one column wide, and ``curves.csv``, what they show.

        Returns:
            The files.

        Raises:
            FedmxError: see `write_latex`; then no file is written.
        """
        targets = (self.target, self.client_target)
        return write_figures(Path(folder), self.groups, targets, csv_text(self.curves()))


def _frame(rows: Sequence[dict[str, Any]], method: str) -> pandas.DataFrame:
    try:
        import pandas
    except ModuleNotFoundError:
        raise FedmxError(
            f'a frame needs pandas; pip install "fedmx[pandas]", or take {method}()'
        ) from None
    return pandas.DataFrame(rows)


def run_rows(
    groups: Sequence[Group], folders: Sequence[RunFolder], target: float | None
) -> list[dict[str, Any]]:
    """Return one row for each run.

    Args:
        groups: the runs.
        folders: of each run, in the same order.
        target: an accuracy; None: then the columns of the target are empty.
    """
    places = iter(folders)
    return [
        {
            **_which(group, seed_of(run)),
            **_settings(groups, group),
            "run": str(next(places).path),
            "status": run.status,
            "verdict": verdict(run, target).words,
            "rounds_run": run.points[-1].round if run.points else 0,
            "final_accuracy": final.accuracy if (final := run.final()) else None,
            "best_accuracy": best.accuracy if (best := run.best()) else None,
            "best_round": best.round if best else None,
            "final_loss": run.final_loss(),
            "final_client_accuracy": p.client_accuracy if (p := run.final_by_client()) else None,
            "up_bytes": int(run.up_bytes),
            "down_bytes": int(run.down_bytes),
            "seconds": run.seconds,
            "virtual_s": run.virtual_s,
            "target": target,
            "rounds_to_target": hit.round if (hit := _reached(run, target)) else None,
            "bytes_to_target": int(hit.bytes) if hit else None,
        }
        for group in groups
        for run in group.runs
    ]


def curve_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return one row for each run and round."""
    return [
        {
            **_which(group, seed_of(run)),
            **_settings(groups, group),
            "round": point.round,
            "accuracy": point.accuracy,
            "loss": point.loss,
            "train_loss": point.train_loss,
            "client_accuracy": point.client_accuracy,
            "bytes": int(point.bytes),
            "time_s": point.time_s,
            "virtual_s": point.virtual_s,
        }
        for group in groups
        for run in group.runs
        for point in run.points
    ]


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV with a line of the columns' names; None is an empty field."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _reached(run: RunSummary, target: float | None) -> Point | None:
    return None if target is None else run.reached(target)


def _which(group: Group, seed: str) -> dict[str, Any]:
    return {"fedmx_group": group.name, "seed": int(seed) if seed.isdigit() else seed}


def _settings(groups: Sequence[Group], group: Group) -> dict[str, Any]:
    paths = dict.fromkeys(path for one in groups for path in one.settings)
    texts = {path: group.settings.get(path, ABSENT) for path in paths}
    return {path: None if text == ABSENT else text for path, text in texts.items()}


def document(runs: Sequence[RunFolder], target_accuracy: float | None = None) -> dict[str, Any]:
    """Return ``target`` and ``runs``: what is known of each run, with a point for each round.

    Shares are from 0 to 1, times in seconds, sizes in bytes; what was not measured is None.

    Args:
        runs: the runs.
        target_accuracy: see `fedmx.report.summary_text`.

    Raises:
        RunError: a run cannot be read.
    """
    summaries = [summarise(run) for run in runs]
    target = common_target(summaries, target_accuracy)
    found = zip(runs, summaries, strict=True)
    return {
        "target": target,
        "runs": [{"run": str(run.path), **_document_of(one, target)} for run, one in found],
    }


def _document_of(run: RunSummary, target: float | None) -> dict[str, Any]:
    final, best = run.final(), run.best()
    reached = None if target is None else run.reached(target)
    return {
        "state": run.status,
        "reason": run.reason,
        "verdict": verdict(run, target).words,
        "rounds": run.points[-1].round if run.points else 0,
        "planned_rounds": run.planned_rounds,
        "final_accuracy": final.accuracy if final else None,
        "final_loss": run.final_loss(),
        "best": _point(best),
        "target": _point(reached),
        "up_bytes": int(run.up_bytes),
        "down_bytes": int(run.down_bytes),
        "control_bytes": int(run.control_bytes),
        "file_bytes": int(run.file_bytes),
        "seconds": run.seconds,
        "settings": dict(run.settings),
        "damage": list(run.damage),
        "points": [asdict(point) for point in run.points],
    }


def _point(point: Point | None) -> dict[str, Any] | None:
    return None if point is None else asdict(point)


_MOST_GROUPS = 4  # of groups; a table of more has a row for each
_IN_ROWS = ("Final accuracy", "Best accuracy", "Final loss")


def summary_text(runs: Sequence[RunFolder], target_accuracy: float | None = None) -> Table:
    """Return a rich table with a column for each run, or for each group of runs.

    Groups differ in more than the seed; a table of many has a row for each. Print it with
    ``rich.console.Console``. Texts of a run are shown literally: rich's markup and control
    sequences in them have no effect.

    Args:
        runs: the runs.
        target_accuracy: the accuracy (0 to 1) to which rounds, bytes and time are counted; None:
            the lowest ``stop.accuracy`` of the experiments.

    Raises:
        RunError: a run cannot be read.
    """
    return comparison_text(Comparison.of(runs, target_accuracy))


def comparison_text(compared: Comparison) -> Table:
    """Return the table of runs that are compared; see `summary_text`."""
    groups = compared.groups
    verdicts = [group_verdict(group, compared.target).words for group in groups]
    rows = [
        (label, ["\n".join(filter(None, cell)) for cell in cells])
        for label, cells in compare_groups(groups, compared.target, compared.client_target)
    ]
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("", overflow="fold")
    if len(groups) <= _MOST_GROUPS:
        for group in groups:
            table.add_column(_literal(group.title), justify="right", overflow="fold")
        for label, cells in [("Verdict", verdicts), *rows]:
            table.add_row(label, *(_literal(cell) for cell in cells))
        return table
    shown = [row for row in rows if row[0] in _IN_ROWS]
    for label, _ in shown:
        table.add_column(label, justify="right")
    table.add_column("Verdict", overflow="fold")
    for place, group in enumerate(groups):
        cells = [cells[place] for _, cells in shown]
        texts = [group.title, *cells, verdicts[place]]
        table.add_row(*(_literal(text) for text in texts))
    return table


def _literal(text: str) -> Text:
    """Return a text without markup and without characters that control a terminal."""
    return Text("".join(c if c.isprintable() or c == "\n" else "�" for c in text))
