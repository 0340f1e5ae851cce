"""The curves as files for a paper: one column wide, with embedded fonts."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.report.figures.curves import plot
from fedmx.report.figures.look import PAPER
from fedmx.report.figures.measures import ALL_AXES, ALL_MEASURES, BY_CLIENT, Axis, Measure
from fedmx.report.records.groups import Group
from fedmx.run.durable import write_bytes_durably

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
    """Write each figure as PDF and SVG, and what they show as CSV.

    Args:
        folder: is made if it is not there.
        groups: what is drawn.
        targets: the accuracies to draw as level lines: on all test samples, and over clients.
        curves: the content of ``curves.csv``.

    Returns:
        The files.

    Raises:
        FedmxError: no round was evaluated, a file is there that fedmx did not write, or the disk
            refuses.
    """
    files: dict[Path, bytes] = {}
    for measure in ALL_MEASURES:
        for axis in ALL_AXES:
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
    """Return the content of the files by their ending; none if there is nothing to draw."""
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
