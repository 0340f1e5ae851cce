"""A partition as a figure: the samples of each client and label."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmx.assembly.label_counts import Counts, LabelCounts
from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.report.html import Html, element
from fedmx.report.partition import summary
from fedmx.report.summary import RunSummary
from fedmx.report.svg import PAGE, PAPER, Look, captioned, html_of, new_figure, style_axes
from fedmx.run import RunError
from fedmx.run.durable import cannot_write, write_bytes_durably

# One hue from light to dark can be read without colour vision. Without its lightest tenth, one
# sample does not look like none, which is white.
_COLOURS = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.1, 1.0, 256)))
_ABSENT = "white"
_LINES = "#d8d8d8"
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": "fedmx"},
    "svg": {"Creator": "fedmx", "Date": None},
    "pdf": {"Creator": "fedmx", "CreationDate": None},
}
"""By format: fedmx as the creator, and no date."""
_MAX_NUMBERED = 12
_DPI = 150


def figure(counts: Counts, path: Path, *, title: str = "Samples by label and client") -> Path:
    """Draw the samples by label and client into a file, whole or not at all; return the path.

    Args:
        counts: see `count`.
        path: the file; its name ends in .png, .svg or .pdf.
        title: the figure's title.

    Raises:
        FedmxError: the name has another ending, the file exists and is not fedmx's, or writing
            fails.
    """
    check_output(path, "a figure is PNG, SVG or PDF", (".png", ".svg", ".pdf"))
    kind = path.suffix.lstrip(".").lower()
    content = io.BytesIO()
    clients, classes = counts.shape
    mix_inches = min(9.0, max(2.6, 0.2 * classes))
    width_inches = min(14.0, max(7.5, 0.11 * clients + 2))
    drawn = Figure((width_inches, mix_inches + 2.2), layout="constrained")
    drawn.suptitle(title, x=0.01, ha="left", fontweight="bold")
    with mpl.rc_context({"svg.hashsalt": "fedmx"}):  # the same data give the same file
        _draw(drawn, counts, range(clients), PAPER)
        words = summary(counts).replace("; ", "\n", 1)
        drawn.axes[0].set_title(words, loc="left", fontsize="small")
        drawn.savefig(content, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    try:
        write_bytes_durably(path, content.getvalue())
    except OSError as error:
        raise FedmxError(cannot_write(path, error)) from None
    return path


def partition_section(run: RunSummary) -> Html | None:
    """Return the samples of a run's clients by label; None: they are not recorded."""
    path = run.folder.labels_path
    if not path.exists():
        return None
    heading = element("h2", "Data")
    try:
        run.folder.check(path)
        total, clients, counts = LabelCounts.from_bytes(path.read_bytes())
    except (RunError, ValueError, OSError) as error:
        words = f"{path.name} cannot be read: {error}"
        return element("section", heading, element("p", words, class_="failed"))
    shown = f"{len(clients)} of {total:,} clients, evenly spaced: " if len(clients) < total else ""
    with new_figure(10.5, 1.9 + min(4.0, max(1.6, 0.16 * counts.shape[1]))) as figure:
        _draw(figure, counts, clients, PAGE)
        svg = html_of(figure, "Samples by label and client")
    drawn = captioned("Samples by label and client", svg, wide=True)
    return element("section", heading, element("p", f"{shown}{summary(counts)}."), drawn)


def _draw(drawn: Figure, counts: Counts, clients: Sequence[int], look: Look) -> None:
    """Draw the number of each client's samples, and below it their number by label.

    Args:
        drawn: an empty figure.
        counts: see `count`.
        clients: the number of each client; they are evenly spaced.
        look: the colours.
    """
    width_inches, height_inches = drawn.get_size_inches()
    grid = drawn.add_gridspec(
        2, 2, height_ratios=[1, height_inches - 2.2], width_ratios=[5 * width_inches, 1]
    )
    sizes = drawn.add_subplot(grid[0, 0])
    mix = drawn.add_subplot(grid[1, 0], sharex=sizes)
    style_axes(sizes, "", "samples", look)
    style_axes(mix, "client", "label", look)
    step = (clients[-1] - clients[0]) / (len(clients) - 1) if len(clients) > 1 else 1
    edges = (clients[0] - step / 2, clients[-1] + step / 2)
    classes = counts.shape[1]

    sizes.bar(clients, counts.sum(axis=1), color=look.lines[0], width=0.8 * step)
    sizes.grid(visible=False)
    sizes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    sizes.yaxis.set_major_formatter(FuncFormatter(_with_commas))
    sizes.tick_params(labelbottom=False)
    image = mix.imshow(
        np.where(counts.T == 0, np.nan, counts.T),  # NaN is drawn in the colour of _ABSENT
        aspect="auto",
        extent=(*edges, classes - 0.5, -0.5),
        interpolation="nearest",
        cmap=_COLOURS.with_extremes(bad=_ABSENT),
        vmin=0,
        vmax=max(1, int(counts.max(initial=0))),
    )
    mix.grid(visible=False)
    mix.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    mix.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=31, min_n_ticks=1))
    # Lines between the cells, where there is room for them.
    if len(clients) <= 120 and classes <= 62:
        x, y = np.linspace(*edges, len(clients) + 1), np.arange(classes + 1) - 0.5
        mix.vlines(x, y[0], y[-1], color=_LINES, linewidth=0.4)
        mix.hlines(y, x[0], x[-1], color=_LINES, linewidth=0.4)
    if len(clients) <= _MAX_NUMBERED and classes <= _MAX_NUMBERED:
        _write_numbers(mix, counts, clients)
    bar = drawn.colorbar(image, cax=drawn.add_subplot(grid[1, 1]))
    bar.set_label("samples", color=look.ink)
    bar.ax.tick_params(colors=look.ink)
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(_with_commas))


def _write_numbers(axes: Axes, counts: Counts, clients: Sequence[int]) -> None:
    most = int(counts.max(initial=0))
    for place, label in np.argwhere(counts > 0):
        value = int(counts[place, label])
        axes.text(
            clients[place],
            label,
            f"{value:,}",
            ha="center",
            va="center",
            color="white" if value > most / 2 else "black",
            fontsize="x-small",
        )


def _with_commas(value: float, position: int | None) -> str:
    return f"{value:,.0f}"
