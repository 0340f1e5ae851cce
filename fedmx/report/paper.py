"""Tables and figures for papers: LaTeX, PDF and SVG."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from math import inf, isfinite
from pathlib import Path
from statistics import mean

from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.report.curves import AXES, BY_CLIENT, MEASURES, Axis, Measure, plot
from fedmx.report.groups import Group
from fedmx.report.quantities import MIB, plain, target_percent
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


def latex_table(groups: Sequence[Group], target: float | None) -> str:
    """Return a ``tabular`` with a row for each group; it needs ``\\usepackage{booktabs}``.

    For several seeds, a cell has the mean over those that have ended and, in parentheses, the
    range. There is no mean of rounds and bytes to a target that one of them missed. The best mean
    accuracy is bold, once all runs have ended.

    Args:
        groups: the groups of runs.
        target: an accuracy, 0 to 1, to which rounds and bytes are counted; None: not counted.
    """
    columns: list[tuple[str, Value, int]] = [
        (r"Final acc.\ (\%)", lambda run: _percent(run.final_accuracy), 2),
        (r"Best acc.\ (\%)", lambda run: _percent(run.best_accuracy), 2),
        ("Up (MiB)", lambda run: run.totals["up_bytes"] / MIB, 2),
        ("Down (MiB)", lambda run: run.totals["down_bytes"] / MIB, 2),
    ]
    if target is not None:
        name = escape(target_percent(target))
        columns += [
            (f"Rounds to {name}", lambda run: p.round if (p := run.reached(target)) else inf, 0),
            (
                f"MiB to {name}",
                lambda run: p.bytes / MIB if (p := run.reached(target)) else inf,
                2,
            ),
        ]
    lines = [
        "% Written by fedmx. Needs \\usepackage{booktabs}.",
        "% With several seeds: the mean over those that have ended, and the range in parentheses.",
        f"\\begin{{tabular}}{{l{'r' * (len(columns) + 1)}}}",
        r"\toprule",
        " & ".join(["", "Seeds", *(head for head, _, _ in columns)]) + r" \\",
        r"\midrule",
    ]
    ended = all(run.ended for group in groups for run in group.runs)
    best = [_best(groups, value) if ended else None for _, value, _ in columns[:2]]
    for index, group in enumerate(groups):
        cells = [_cell(group, value, digits) for _, value, digits in columns]
        for place in range(len(best)):
            if best[place] == index:
                cells[place] = f"\\textbf{{{cells[place]}}}"
        seeds = str(len(group.runs))
        if len(group.ended) < len(group.runs):
            seeds = f"{len(group.ended)} of {seeds}"
        cells = [escape(group.name), seeds, *cells]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """Return a text with LaTeX's special characters escaped."""
    return "".join(_ESCAPES.get(one, one if one.isprintable() else "?") for one in text)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _values(group: Group, value: Value) -> list[float]:
    """Return the values of the runs that have ended; infinity: the target was not reached."""
    return [found for run in group.ended if (found := value(run)) is not None]


def _best(groups: Sequence[Group], value: Value) -> int | None:
    """Return the position of the group with the largest mean; None: there is only one group."""
    means = {place: mean(known) for place, g in enumerate(groups) if (known := _values(g, value))}
    return max(means, key=lambda place: means[place]) if len(means) > 1 else None


def _cell(group: Group, value: Value, digits: int) -> str:
    values = _values(group, value)
    known = list(filter(isfinite, values))
    if not known:
        return _NOTHING
    text = _NOTHING
    if len(known) == len(values):
        middle = mean(known)
        text = f"{middle:.{digits}f}" if digits else plain(middle).replace(",", "")
        least, most = f"{min(known):.{digits}f}", f"{max(known):.{digits}f}"
        if least != most:
            text += f" ({least}--{most})"
    if len(known) < len(group.ended):
        text += f" [{len(known)} of {len(group.ended)}]"
    return text


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
    folder: Path, groups: Sequence[Group], targets: tuple[float | None, float | None], curves: str
) -> list[Path]:
    """Write each figure as PDF and SVG, and the data as CSV.

    Args:
        folder: where; it is created if missing.
        groups: the groups of runs to draw.
        targets: accuracies to draw as horizontal lines: on all test samples, and over clients.
        curves: the content of ``curves.csv``.

    Returns:
        The files.

    Raises:
        FedmxError: no round was evaluated, a file exists that fedmx did not write, or writing
            fails.
    """
    files: dict[Path, bytes] = {}
    for measure in MEASURES:
        for axis in AXES:
            target = targets[1] if measure is BY_CLIENT else targets[0]
            name = f"{measure.name}-{axis.name}".lower().replace(" ", "-")
            for ending, content in _drawn(groups, measure, axis, target).items():
                files[folder / f"{name}.{ending}"] = content
    if not files:
        raise FedmxError("no round has been evaluated, so there is no figure to write")
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
    groups: Sequence[Group], measure: Measure, axis: Axis, target: float | None
) -> dict[str, bytes]:
    """Return the content of the files by their ending; empty if there is nothing to draw."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        if not plot(axes, groups, measure, axis, target, look=PAPER, points=_FONT - 0.5):
            return {}
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
