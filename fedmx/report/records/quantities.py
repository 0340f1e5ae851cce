"""How a report writes a share, a size, a time and a number: few digits, and the unit with it."""

from __future__ import annotations

MIB = 2**20
NOTHING = "–"
_TOO_LARGE = 1e100  # a loss of this size has nothing to say but that the run diverged


def finite(value: object) -> float | None:
    """``value`` if it is a number, and one that can be drawn."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _TOO_LARGE else None  # False for NaN, too


def percent(share: float | None, decimals: int = 2) -> str:
    """0.98123 is ``98.12 %``."""
    return NOTHING if share is None else f"{100 * share:.{decimals}f} %"


def target_percent(share: float) -> str:
    """A share as somebody asked for it: 0.98 is ``98 %``, 0.985 is ``98.5 %``."""
    return f"{100 * share:.4g} %"


def number(value: float | None) -> str:
    """Four significant digits."""
    return NOTHING if value is None else f"{value:.4g}"


def mebibytes(size_bytes: float | None) -> str:
    """Three or four digits, always in MiB, so that columns can be compared."""
    if size_bytes is None:
        return NOTHING
    size = size_bytes / MIB
    decimals = 0 if size >= 1000 or size == 0 else 1 if size >= 100 else 2 if size >= 1 else 4
    return f"{size:,.{decimals}f} MiB"


def duration(seconds: float | None) -> str:
    """``0.42 s``, ``7.5 s``, ``12 min 3 s`` or ``3 h 20 min``."""
    if seconds is None:
        return NOTHING
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min"
