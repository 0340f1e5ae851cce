"""Figures in the texts of docs/papers.md: what stands in braces is computed from the records.

    {CELL MEASURE COLUMN UNIT TARGET}         the median of a cell's seeds
    {each CELL ...}, {range CELL ...}         the value of each seed, "LEAST to GREATEST"
    {least CELL ...}, {greatest CELL ...}     one of these two
    {CELL rounds}                             how many rounds were run

CELL is a cell of the text's group, or GROUP/CELL; with ``-s2`` at its end it is one seed, and ``*``
stands for any text. MEASURE, COLUMN and UNIT are those of measures.py, and TARGET is in percent.
``MEASURE@20`` looks at the first 20 rounds alone, ``MEASURE@-20`` at the last 20. ``UNIT*30``
multiplies a round count by 30, and ``UNIT:1`` shows one digit behind the point.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from cells import Cell, matching
from measures import Measure
from records import Record, load

FIGURE = re.compile(
    r"\{(?:(?P<of>each|range|least|greatest) )?(?P<cell>\S+)"
    r" (?:rounds|(?P<what>[a-z_]+)(?:@(?P<rounds>-?\d+))? (?P<column>\w+)"
    r" (?P<unit>[%A-Za-z]+)(?:\*(?P<factor>[\d.]+))?(?::(?P<digits>\d))?"
    r"(?: (?P<target>[\d.]+))?)\}"
)


@dataclass
class Figures:
    """Puts figures into texts, and remembers the runs that they are of.

    Attributes:
        group: of the cells that are named without one.
        progress: whether a figure of a run that is under way says how far it is.
        runs: the cells that the texts name so far, and their records.
    """

    group: str
    progress: bool = False
    runs: dict[Cell, Record | None] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        """Return a text with its figures."""
        filled = FIGURE.sub(self._figure, text)
        assert "{" not in filled, f"tables.yaml: no figure: {filled[filled.index('{') :][:60]}"
        return filled

    def _figure(self, match: re.Match[str]) -> str:
        group, _, name = match["cell"].rpartition("/")
        group = group or self.group
        planned, records = matching(group, name), load(group)
        assert planned, f"tables.yaml: {group} has no cell {name}"
        self.runs.update({one: records.get(one.name) for one in planned})
        found = {one: records[one.name] for one in planned if one.name in records}
        if not found:
            return "not run"
        measure = Measure(
            of=match["column"] or "accuracy",
            what=match["what"] or "rounds",
            target=float(match["target"]) / 100 if match["target"] else None,
            unit=match["unit"] or "rounds",
            factor=float(match["factor"] or 1),
            rounds=int(match["rounds"]) if match["rounds"] else None,
        )
        values = [value for one in found.values() if (value := measure.of_record(one)) is not None]
        if not values:
            return "not reached" if measure.target else "not run"
        digits = int(match["digits"]) if match["digits"] else None
        return _of_seeds(match["of"], values, measure, digits) + self._so_far(found, measure)

    def _so_far(self, found: dict[Cell, Record], measure: Measure) -> str:
        """Return how far the runs are that are under way, if their figure may still change."""
        under_way = [one for one in found if not found[one].reason]
        if not self.progress or not under_way:
            return ""
        rounds = max(found[one].rounds for one in under_way)
        if measure.rounds is not None and 0 < measure.rounds <= rounds:
            return ""
        return f" (in {of_planned(rounds, under_way)})"


def of_planned(number: int, cells: Sequence[Cell]) -> str:
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
