"""The results of groups as a table for LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from fedmx.report.records.groups import Group
from fedmx.report.records.quantities import MIB, plain, target_percent
from fedmx.report.records.summary import RunSummary

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

    Of several seeds it has the mean and, in parentheses, the least and the largest value. The best
    mean of the accuracies is bold.

    Args:
        groups: the runs.
        target: an accuracy, 0 to 1, to which rounds and bytes are counted; None: they are not.
    """
    columns: list[tuple[str, Value, int]] = [
        (r"Final acc.\ (\%)", lambda run: _percent(p.accuracy if (p := run.final()) else None), 2),
        (r"Best acc.\ (\%)", lambda run: _percent(p.accuracy if (p := run.best()) else None), 2),
        ("Up (MiB)", lambda run: run.up_bytes / MIB, 2),
        ("Down (MiB)", lambda run: run.down_bytes / MIB, 2),
    ]
    if target is not None:
        name = escape(target_percent(target))
        columns += [
            (f"Rounds to {name}", lambda run: p.round if (p := run.reached(target)) else None, 0),
            (
                f"MiB to {name}",
                lambda run: p.bytes / MIB if (p := run.reached(target)) else None,
                2,
            ),
        ]
    lines = [
        "% Written by fedmx. Needs \\usepackage{booktabs}.",
        "% Of several seeds: the mean, and in parentheses the least and the largest value.",
        f"\\begin{{tabular}}{{l{'r' * (len(columns) + 1)}}}",
        r"\toprule",
        " & ".join(["", "Seeds", *(head for head, _, _ in columns)]) + r" \\",
        r"\midrule",
    ]
    best = [_best(groups, value) if place < 2 else None for place, (_, value, _) in _at(columns)]
    for index, group in enumerate(groups):
        cells = [escape(group.name), str(len(group.runs))]
        for place, (_, value, digits) in _at(columns):
            text = _cell(group, value, digits)
            cells.append(f"\\textbf{{{text}}}" if best[place] == index else text)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escape(text: str) -> str:
    """Return a text as LaTeX prints it."""
    return "".join(_ESCAPES.get(one, one if one.isprintable() else "?") for one in text)


def _at(columns: Sequence[tuple[str, Value, int]]) -> list[tuple[int, tuple[str, Value, int]]]:
    return list(enumerate(columns))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _values(group: Group, value: Value) -> list[float]:
    return [found for run in group.runs if (found := value(run)) is not None]


def _best(groups: Sequence[Group], value: Value) -> int | None:
    """Return the place of the group with the largest mean; None: there is only one group."""
    means = {place: mean(known) for place, g in enumerate(groups) if (known := _values(g, value))}
    return max(means, key=lambda place: means[place]) if len(means) > 1 else None


def _cell(group: Group, value: Value, digits: int) -> str:
    known = _values(group, value)
    if not known:
        return _NOTHING
    middle = mean(known)
    text = f"{middle:.{digits}f}" if digits else plain(middle).replace(",", "")
    least, most = f"{min(known):.{digits}f}", f"{max(known):.{digits}f}"
    if least != most:
        text += f" ({least}--{most})"
    if len(known) < len(group.runs):
        text += f" [{len(known)} of {len(group.runs)}]"
    return text
