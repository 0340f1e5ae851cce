"""The curve of one run in axes of matplotlib, for a notebook or a paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedmx.components.text import unknown
from fedmx.errors import FedmxError
from fedmx.report.figures.measures import ALL_AXES, MEASURES
from fedmx.report.figures.svg import STEPS, fitting_unit
from fedmx.report.records.points import points_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEASURES = {one.name.lower(): one for one in MEASURES}
_AXES = {one.name: one for one in ALL_AXES}
_MARKERS_UP_TO = 40


def plot(
    records: Iterable[Mapping[str, Any]],
    measure: str,
    against: str,
    *,
    axes: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Draw what the records of a run say, and return the axes; see `Server.plot`.

    Raises:
        FedmxError: there is no such measure, or no round has it.
    """
    if measure not in _MEASURES:
        raise FedmxError(f"plot: {unknown('measure', measure, _MEASURES)}")
    if against not in _AXES:
        raise FedmxError(f"plot: {unknown('axis', against, _AXES)}")
    height, axis = _MEASURES[measure], _AXES[against]
    pairs = [
        (x, y)
        for point in points_of(list(records))
        if (x := axis.value(point)) is not None and (y := height.value(point)) is not None
    ]
    if not pairs:
        raise FedmxError(
            f"plot: no round has {measure} against {against} yet; run the simulation first, or "
            f"give another axis ({', '.join(_AXES)})"
        )
    if axes is None:
        # Not at the top: who draws into axes of his own needs no window or notebook.
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(5.0, 3.0), layout="constrained")[1]
    unit, scale = fitting_unit(axis.units, pairs[-1][0])
    if axes.get_xlabel():  # a curve is there already, whose unit stays
        unit, scale = next(
            (one for one in axis.units if one[0] == axes.get_xlabel()), (unit, scale)
        )
    axes.plot(
        [x / scale for x, _ in pairs],
        [y for _, y in pairs],
        marker="o" if len(pairs) <= _MARKERS_UP_TO else None,
        markersize=3,
        label=label,
    )
    axes.set_xlabel(unit)
    axes.set_ylabel(height.label)
    axes.set_xlim(left=0)
    if unit == "round":
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=STEPS, integer=True))
    axes.grid(visible=True, linewidth=0.6, alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    if label is not None:
        axes.legend(frameon=False)
    return axes
