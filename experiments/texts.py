"""Numbers in the texts of docs/papers.md: expressions in braces are computed from the records.

    {CELL MEASURE COLUMN UNIT TARGET}         the median of a cell's seeds
    {each CELL ...}, {range CELL ...}         the value of each seed, "LEAST to GREATEST"
    {least CELL ...}, {greatest CELL ...}     the least or the greatest of them
    {CELL rounds}                             the number of rounds

CELL is a cell of the text's group, or GROUP/CELL; with ``-s2`` at its end it is one seed, and ``*``
matches any text. MEASURE and UNIT are those of measures.py, COLUMN is one of records.py, and
TARGET is in percent.
``MEASURE@20`` uses only the first 20 rounds, ``MEASURE@-20`` the last 20. ``UNIT*30``
multiplies a number that is not in percent by 30, and ``UNIT:1`` shows one decimal place.
Seeds without the number, such as those that have not reached a target, are counted after it.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from cells import Cell, matching
from measures import MEASURES, OF_A_TARGET, SETTLED, UNITS, Measure
from records import ALL_COLUMNS, Record, load

NUMBER = re.compile(
    r"\{(?:(?P<of>each|range|least|greatest) )?(?P<cell>\S+)"
    r" (?:rounds|(?P<what>[a-z_]+)(?:@(?P<rounds>-?\d+))? (?P<column>\w+)"
    r" (?P<unit>[%A-Za-z]+)(?:\*(?P<factor>[\d.e-]+))?(?::(?P<digits>\d))?"
    r"(?: (?P<target>[\d.]+))?)\}"
)


@dataclass
class Numbers:
    """Puts numbers into texts, and remembers their runs.

    Attributes:
        group: of the cells that are named without one.
        progress: whether a number of a run that is under way says how far it is.
        runs: the cells that the texts name so far, and their records.
    """

    group: str
    progress: bool = False
    runs: dict[Cell, Record | None] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        """Return a text with its numbers."""
        filled = NUMBER.sub(self._number, text)
        assert "{" not in filled, f"no number: {filled[filled.index('{') :][:60]}"
        return filled

    def value(self, match: re.Match[str]) -> float | None:
        """Return a number itself; infinity: not reached; None: a run is not far enough for it."""
        measure, found = _measure(match), self._found(match)
        short = [one for one in found.values() if _may_change(one, measure)]
        if not found or short:
            return None
        values = [measure.of_record(one) for one in found.values()]
        reached = [math.inf if value is None else value for value in values]
        return {"greatest": max, "least": min}.get(match["of"], statistics.median)(reached)

    def _found(self, match: re.Match[str]) -> dict[Cell, Record]:
        """Return the records of the cells that a number names."""
        group, _, name = match["cell"].rpartition("/")
        group = group or self.group
        planned, records = matching(group, name), load(group)
        assert planned, f"{match[0]}: there is no cell {group}/{name}"
        self.runs.update({one: records.get(one.name) for one in planned})
        return {one: records[one.name] for one in planned if one.name in records}

    def _number(self, match: re.Match[str]) -> str:
        measure, found = _measure(match), self._found(match)
        if not found:
            return "not run"
        values = [
            value
            for record in found.values()
            if not _is_short(record, measure) and (value := measure.of_record(record)) is not None
        ]
        if not values:
            return "not reached" if measure.target else "not run so far"
        digits = int(match["digits"]) if match["digits"] else None
        text = _of_seeds(match["of"], values, measure, digits)
        if len(values) < len(found):
            text += f" ({len(values)} of {len(found)} seeds)"
        return text + self._so_far(found, measure)

    def _so_far(self, found: dict[Cell, Record], measure: Measure) -> str:
        """Return how far the runs are that are under way, if their number may still change.

        A target that was reached stays reached.
        """
        under_way = [one for one in found if not found[one].reason]
        settled = measure.what in (*SETTLED, "rounds")
        if (
            not self.progress
            or settled
            or not any(_may_change(found[one], measure) for one in under_way)
        ):
            return ""
        rounds = max(found[one].rounds for one in under_way)
        return f" (in {_of_planned(rounds, under_way)})"


def _measure(match: re.Match[str]) -> Measure:
    """Return the measure that a text names; an error names an unknown word."""
    what, column, unit = match["what"] or "rounds", match["column"], match["unit"]
    for word, known in ((what, MEASURES), (column, ALL_COLUMNS), (unit, UNITS)):
        assert word is None or word in known, f"{match[0]}: {word} is none of {', '.join(known)}"
    assert (what in OF_A_TARGET) == bool(match["target"]), f"{match[0]}: with a target, or without?"
    return Measure(
        of=column or "accuracy",
        what=what,
        target=round(float(match["target"]) / 100, 9) if match["target"] else None,
        unit=unit or "rounds",
        factor=float(match["factor"] or 1),
        rounds=int(match["rounds"]) if match["rounds"] else None,
    )


def _may_change(record: Record, measure: Measure) -> bool:
    """Return whether more rounds of a run that is under way may change its number."""
    if record.reason or (measure.rounds is not None and 0 < measure.rounds <= record.rounds):
        return False
    return measure.what not in SETTLED or measure.of_record(record) is None


def _is_short(record: Record, measure: Measure) -> bool:
    """Return whether a run that is under way has not come to the rounds that are asked for."""
    return not record.reason and record.rounds < (measure.rounds or 0)


def _of_planned(number: int, cells: Sequence[Cell]) -> str:
    """Return a number of rounds in words, and how many are planned for the cells."""
    return f"{number:,} of {max(cell.experiment().rounds for cell in cells):,} rounds"


def _of_seeds(of: str | None, values: list[float], measure: Measure, digits: int | None) -> str:
    texts = [measure.text(value, digits) for value in sorted(values)]
    if of == "range" and texts[0] != texts[-1]:
        return f"{texts[0]} to {texts[-1]}"
    if of == "each" and len(texts) > 1:
        each = [measure.text(value, digits) for value in values]
        return f"{', '.join(each[:-1])} and {each[-1]}"
    if of == "greatest":
        return texts[-1]
    return texts[0] if of == "least" else measure.text(statistics.median(values), digits)
