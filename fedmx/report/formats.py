"""Texts of shares, sizes, times and numbers: few digits, with the unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from layers.compute.engines.evaluation import ACCURACY

if TYPE_CHECKING:
    from fedmx.quantities import Quantity

MIB = 2**20
NOTHING = "–"
_TOO_LARGE = 1e100  # a larger loss only shows that the run diverged


def finite(value: object) -> float | None:
    """Return a value as a float; None: it is not a number, or too large to draw."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _TOO_LARGE else None  # false for NaN


def whole(value: object) -> int | None:
    """Return a value that is a whole number; None: it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def percent(share: float | None, decimals: int = 2) -> str:
    """Return a share in percent: 0.98123 is ``98.12 %``."""
    return NOTHING if share is None else f"{100 * share:.{decimals}f} %"


def target_percent(share: float) -> str:
    """Return a target in percent without zeros: 0.98 is ``98 %``, 0.985 is ``98.5 %``."""
    return f"{100 * share:.4g} %"


def target_text(metric: Quantity, target: float) -> str:
    """Return a target of a metric, as ``98 %`` of the accuracy, or ``rmse 0.5``."""
    return _named(metric, (target_percent if metric.unit == "share" else number)(target))


def value_text(metric: Quantity, value: float | None) -> str:
    """Return a value of a metric, as ``98.12 %`` of the accuracy, or ``rmse 0.5123``."""
    return _named(metric, SHOW[metric.unit](value))


def _named(metric: Quantity, text: str) -> str:
    return text if metric.key == ACCURACY else f"{metric.words} {text}"


def number(value: float | None) -> str:
    """Return a number with four significant digits."""
    return NOTHING if value is None else f"{value:.4g}"


SHOW: Mapping[str, Callable[[float | None], str]] = {"share": percent, "number": number}
"""The text of a quantity's value, by its unit."""


def plain(value: float, digits: int = 3, sign: str = "") -> str:
    """Return a number with significant digits, and all digits before the point.

    With three digits 8.667 is ``8.67`` and 1234.5 is ``1,234``. The sign ``+`` is always shown.
    """
    if abs(value) < 10**digits - 0.5:
        return f"{value:{sign}.{digits}g}"
    return f"{value:{sign},.0f}"


def mebibytes(size_bytes: float | None) -> str:
    """Return a size in MiB with three or four digits; one unit makes columns comparable."""
    if size_bytes is None:
        return NOTHING
    size = size_bytes / MIB
    decimals = 0 if size >= 1000 or size == 0 else 1 if size >= 100 else 2 if size >= 1 else 4
    return f"{size:,.{decimals}f} MiB"


def both_ways(size_bytes: float) -> str:
    """Return the size of what went up and down together; a size alone is one direction."""
    return f"{mebibytes(size_bytes)} up and down"


def duration(seconds: float | None) -> str:
    """Return a time: ``0.423 s``, ``2.15 s``, ``12.3 s``, ``12 min 3 s`` or ``3 h 20 min``."""
    if seconds is None:
        return NOTHING
    if seconds < 59.95:
        return f"{seconds:.{3 if seconds < 0.9995 else 2 if seconds < 9.995 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min"
