"""A partition as a figure: the samples of each client and label."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmx.errors import FedmxError
from fedmx.output_file import check_output
from fedmx.report.partition import Counts, summary
from fedmx.run.durable import cannot_write, write_bytes_durably

# One hue from light to dark can be read without colour vision. Without its lightest tenth, one
# sample does not look like none, which is white.
_COLOURS = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.1, 1.0, 256)))
_ABSENT = "white"
_BAR_COLOUR = "#4a6fa5"
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
    with mpl.rc_context({"svg.hashsalt": "fedmx"}):  # the same data give the same file
        _draw(counts, title).savefig(content, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    try:
        write_bytes_durably(path, content.getvalue())
    except OSError as error:
        raise FedmxError(cannot_write(path, error)) from None
    return path


def _draw(counts: Counts, title: str) -> Figure:
    clients, classes = counts.shape
    width_inches = min(14.0, max(7.5, 0.11 * clients + 2))
    mix_inches = min(9.0, max(2.6, 0.2 * classes))
    drawn = Figure(figsize=(width_inches, mix_inches + 2.2), layout="constrained")
    grid = drawn.add_gridspec(
        2, 2, height_ratios=[1, mix_inches], width_ratios=[5 * width_inches, 1]
    )
    sizes = drawn.add_subplot(grid[0, 0])
    mix = drawn.add_subplot(grid[1, 0], sharex=sizes)
    drawn.suptitle(title, x=0.01, ha="left", fontweight="bold")
    sizes.set_title(summary(counts).replace("; ", "\n", 1), loc="left", fontsize="small")

    _draw_sizes(sizes, counts.sum(axis=1))
    image = mix.imshow(
        np.where(counts.T == 0, np.nan, counts.T),  # NaN is drawn in the colour of _ABSENT
        aspect="auto",
        interpolation="nearest",
        cmap=_COLOURS.with_extremes(bad=_ABSENT),
        vmin=0,
        vmax=max(1, int(counts.max(initial=0))),
    )
    mix.set_xlabel("client")
    mix.set_ylabel("label")
    mix.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20, min_n_ticks=1))
    mix.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=31, min_n_ticks=1))
    # Lines between the cells, where there is room for them.
    if clients <= 120 and classes <= 62:
        mix.set_xticks(np.arange(clients + 1) - 0.5, minor=True)
        mix.set_yticks(np.arange(classes + 1) - 0.5, minor=True)
        mix.grid(which="minor", color="#d8d8d8", linewidth=0.4)
        mix.tick_params(which="minor", length=0)
    if clients <= _MAX_NUMBERED and classes <= _MAX_NUMBERED:
        _write_numbers(mix, counts)
    bar = drawn.colorbar(image, cax=drawn.add_subplot(grid[1, 1]), label="samples")
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(_with_commas))
    return drawn


def _draw_sizes(axes: Axes, sizes: npt.NDArray[np.int64]) -> None:
    axes.bar(np.arange(len(sizes)), sizes, color=_BAR_COLOUR, width=0.8)
    axes.set_ylabel("samples")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    axes.yaxis.set_major_formatter(FuncFormatter(_with_commas))
    axes.tick_params(labelbottom=False)
    axes.tick_params(which="minor", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _write_numbers(axes: Axes, counts: npt.NDArray[np.int64]) -> None:
    most = int(counts.max(initial=0))
    for client, label in np.argwhere(counts > 0):
        value = int(counts[client, label])
        colour = "white" if value > most / 2 else "black"
        axes.text(
            client, label, f"{value:,}", ha="center", va="center", color=colour, fontsize="x-small"
        )


def _with_commas(value: float, position: int | None) -> str:
    return f"{value:,.0f}"
