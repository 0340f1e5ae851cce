"""Tables and figures for papers: LaTeX, PDF and SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from math import inf, isfinite
from pathlib import Path
from statistics import mean
from typing import Literal, NamedTuple

from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.quantities import Quantity
from fedmx.report.curves import AXES, Axis, Measure, Targets, has_values, measures_of, plot
from fedmx.report.formats import MIB, plain, target_text
from fedmx.report.groups import Group
from fedmx.report.metrics import BEST, Metric, Pairs, is_best, metrics_for
from fedmx.report.summary import RunSummary
from fedmx.report.svg import PAPER
from fedmx.run.durable import write_bytes_durably, write_text_durably

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_NOTHING = "--"

Value = Callable[[RunSummary], float | None]
Columns = Literal["single", "double"]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        head: the lines of its heading.
        value: of a run; infinity: the target was not reached.
        digits: after the point; 0: a count.
        metric: decides which mean is bold; None: none is.
    """

    head: Sequence[str]
    value: Value
    digits: int
    metric: Metric | None = None


def latex_table(
    groups: Sequence[Group], target: float | None, pairs: Pairs = (), columns: Columns = "single"
) -> str:
    """Return a ``tabular`` for LaTeX; it needs ``\\usepackage{booktabs}``.

    A group has a row with its values, and for several seeds a second one with their number and the
    ranges; the values are then means over the seeds that have ended. There is no mean of rounds and
    bytes to a target that one of them missed. A mean of the metric is bold if the 95 % interval of
    its difference to each group that it is compared with, seed by seed, excludes 0, and all runs
    have ended.

    Args:
        groups: the groups of runs.
        target: the value of their metric to which rounds and bytes are counted; None: not counted.
        pairs: the groups that are compared.
        columns: the number of columns of the text that the table may fill; a table for one of two
            columns shows bytes only to the target, if there is one.
    """
    chosen, width = _columns(groups[0].runs[0].metric, target, columns), _NAME_WIDTH[columns]
    several = any(len(group.runs) > 1 for group in groups)
    ended = all(run.ended for group in groups for run in group.runs)
    heads = (_stacked(column.head) for column in chosen)
    lines = [
        "% Written by fedmx. Needs \\usepackage{booktabs}.",
        "% With several seeds: the mean over those that have ended, and below it the range.",
        "% Bold: the 95 % intervals of the differences to the others, seed by seed, exclude 0.",
        r"\begingroup\footnotesize\setlength{\tabcolsep}{2.5pt}",
        f"\\begin{{tabular}}{{@{{}}l{'r' * len(chosen)}@{{}}}}",
        r"\toprule",
        " & ".join(["", *heads]) + r" \\",
        r"\midrule",
    ]
    for group in groups:
        cells = [_cell(group, column) for column in chosen]
        texts = [
            rf"\textbf{{{text}}}"
            if ended and column.metric and is_best(column.metric, group, pairs)
            else text
            for column, (text, _) in zip(chosen, cells, strict=True)
        ]
        name = rf"\parbox[t]{{{width}\columnwidth}}{{\raggedright {escape(group.name)}\strut}}"
        lines.append(" & ".join([name, *texts]) + r" \\")
        if several:
            below = [_seeds(group), *(text for _, text in cells)]
            lines.append(" & ".join(f"\\scriptsize {one}".rstrip() for one in below) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\endgroup", ""])


_NAME_WIDTH = {"single": 0.24, "double": 0.4}  # in columns of the text


def _columns(metric: Quantity, target: float | None, columns: Columns) -> list[Column]:
    compared = metrics_for(metric, target)
    name = rf"{metric.short}.\ " if metric.short else escape(f"{metric.words} ")
    name, digits = (rf"{name}(\%)", 2) if metric.unit == "share" else (name.strip(), 4)

    def column(when: str, of: Metric) -> Column:
        return Column((when, name), lambda run: _in_unit(of, run), digits, of)

    found = [column("Final", compared[metric.key]), column("Best", compared[BEST])]
    if target is None or columns == "double":
        found += [
            Column(("Up", "(MiB)"), lambda run: run.totals["up_bytes"] / MIB, 2),
            Column(("Down", "(MiB)"), lambda run: run.totals["down_bytes"] / MIB, 2),
        ]
    if target is not None:
        name = f"to {escape(target_text(metric, target))}"
        found += [
            Column(("Rounds", name), lambda run: p.round if (p := run.reached(target)) else inf, 0),
            Column(
                ("MiB", name), lambda run: p.bytes / MIB if (p := run.reached(target)) else inf, 2
            ),
        ]
    return found


def _stacked(lines: Sequence[str]) -> str:
    text = r"\\".join(lines)
    return rf"\shortstack[r]{{{text}}}"


def _seeds(group: Group) -> str:
    number, ended = len(group.runs), len(group.ended)
    seeds = f"{number} seed" if number == 1 else f"{number} seeds"
    return seeds if ended == number else f"{ended} of {seeds}"


def escape(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return "".join(_ESCAPES.get(one, one if one.isprintable() else "?") for one in text)


def _in_unit(metric: Metric, run: RunSummary) -> float | None:
    value = metric.of(run)
    return None if value is None else value / metric.unit


def _values(group: Group, value: Value) -> list[float]:
    """Return the values of the runs that have ended; infinity: the target was not reached."""
    return [found for run in group.ended if (found := value(run)) is not None]


def _cell(group: Group, column: Column) -> tuple[str, str]:
    """Return the value of a group's runs, and below it their range."""
    values = _values(group, column.value)
    known = list(filter(isfinite, values))
    if not known:
        return _NOTHING, ""
    if len(known) < len(values):  # the mean of the others would look too good
        return _NOTHING, f"{len(known)} of {len(values)}"
    middle, digits = mean(known), column.digits
    text = f"{middle:.{digits}f}" if digits else plain(middle).replace(",", "")
    least, most = f"{min(known):.{digits}f}", f"{max(known):.{digits}f}"
    return text, "" if least == most else f"{least}--{most}"


WIDTH, HEIGHT = 3.3, 2.2  # inches: one column of a page of two
_FONT = 7.5  # points
_STYLE = {
    "font.size": _FONT,
    "axes.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType, as publishers ask
    "svg.fonttype": "path",  # no reader needs the font
    "svg.hashsalt": "fedmx",
}
_CURVES = "curves.csv"


def write_figures(
    folder: Path, groups: Sequence[Group], targets: Targets, curves: str
) -> list[Path]:
    """Write each figure as PDF and SVG, and the data as CSV.

    Args:
        folder: where; it is created if missing.
        groups: the groups of runs to draw.
        targets: to draw as horizontal lines: on all test samples, and over clients.
        curves: the content of ``curves.csv``.

    Returns:
        The files.

    Raises:
        FedmxError: no run has two evaluated rounds, a file exists that fedmx did not write, or
            writing fails.
    """
    files: dict[Path, bytes] = {}
    for measure in measures_of([run for group in groups for run in group.runs]):
        for axis in AXES:
            if not has_values(groups, measure, axis):
                continue
            name = f"{measure.key}-{axis.name}".replace(" ", "-").replace("_", "-")
            for ending, content in _drawn(groups, measure, axis, targets).items():
                files[folder / f"{name}.{ending}"] = content
    if not files:
        raise FedmxError("fewer than two rounds have been evaluated: no figure to write")
    files[folder / _CURVES] = curves.encode()
    for path in files:
        check_output(path, "figures are PDF and SVG", (path.suffix,))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_bytes_durably(path, content)
    except OSError as error:
        raise FedmxError(f"{folder}: cannot write the figures ({error.strerror})") from None
    return list(files)


def _drawn(
    groups: Sequence[Group], measure: Measure, axis: Axis, targets: Targets
) -> dict[str, bytes]:
    """Return the content of the files by their ending."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        level = measure.level(targets)
        plot(axes, groups, measure, axis, level, look=PAPER, points=_FONT - 0.5)
        found = {}
        for ending, date in (("pdf", "CreationDate"), ("svg", "Date")):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, metadata={"Creator": "fedmx", date: None})
            found[ending] = buffer.getvalue()
        return found


def write_output(path: Path, text: str, what: str, endings: Sequence[str]) -> None:
    """Write a file whole or not at all; only a file that fedmx wrote is replaced.

    Raises:
        FedmxError: see `check_output`, or writing fails.
    """
    check_output(path, what, endings)
    try:
        write_text_durably(path, text)
    except OSError as error:
        raise FedmxError(f"{path}: cannot write it ({error.strerror})") from None
