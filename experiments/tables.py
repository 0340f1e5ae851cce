"""The tables of docs/papers.md, from the records: what the papers say and what fedmx gets.

    python experiments/tables.py

writes what lies between ``<!-- tables -->`` marks of the page anew; the rest of the page is
written by hand. What a table compares is in tables.yaml.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

import yaml
from cells import HERE, cells
from measures import Measure, verdict
from records import Record, load

PAGE = HERE.parent / "docs" / "papers.md"
FIGURE = re.compile(r"\{(\S+) (\S+) (\S+) ([^ }]+)(?: (\d+))?\}")
BEGIN, END = "<!-- {} -->\n", "<!-- end of {} -->\n"


@dataclass(frozen=True)
class Row:
    """One figure of a paper, or one claim, and what fedmx gets.

    Attributes:
        name: the cell without its seed, or the claim.
        paper: the paper's figure.
        ours: our median, least and greatest.
        seeds: how many seeds have come to the figure, and how many are planned.
        rounds: of all seeds together.
        hours: of all seeds together.
        verdict: ``within``, ``outside`` or ``open``.
        reason: why it differs, from an experiment; empty if that is open.
    """

    name: str
    paper: str
    ours: str
    seeds: str
    rounds: int
    hours: float
    verdict: str
    reason: str = ""

    @property
    def count_as(self) -> str:
        """The column of the overview that counts the row."""
        if self.verdict == "outside":
            return "outside, with a reason" if self.reason else "outside, no reason yet"
        return self.verdict


COUNTED = ("within", "outside, with a reason", "outside, no reason yet", "open")


@dataclass(frozen=True)
class Table:
    """A table or a figure of a document, as tables.yaml has it."""

    document: str
    name: str
    group: str
    what: str
    measure: Measure = field(default_factory=Measure)
    paper: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Mapping[str, str], ...] = ()
    note: str = ""
    figure: str = ""

    @classmethod
    def parse(cls, tree: Mapping[str, Any]) -> Table:
        """Return a table of an entry of tables.yaml."""
        measure = Measure(**tree.get("measure", {}))
        return cls(**{**tree, "measure": measure, "claims": tuple(tree.get("claims", ()))})

    def rows(self) -> list[Row]:
        """Return a row for each of the paper's figures, and for each of its claims."""
        records = load(self.group) if self.group else {}
        rows = [self._row(name, float(figure), records) for name, figure in self.paper.items()]
        return rows + [self._claim(**claim) for claim in self.claims]

    def _claim(self, claim: str, ours: str, verdict: str, reason: str = "") -> Row:
        """Return the row of a claim; ``{CELL MEASURE COLUMN UNIT [TARGET %]}`` becomes a figure."""

        def figure(match: re.Match[str]) -> str:
            group, _, cell = match[1].rpartition("/")
            group = group or self.group
            planned, records = cells([f"{group}/{cell}-s*"]), load(group)
            assert planned, f"tables.yaml: {group} has no cell {cell}"
            target = float(match[5]) / 100 if match[5] else None
            measure = Measure(of=match[3], what=match[2], target=target, unit=match[4])
            found = [records[one.name] for one in planned if one.name in records]
            values = [value for one in found if (value := measure.of_record(one)) is not None]
            if not values:
                return "not run"
            text = measure.text(statistics.median(values))
            rounds = max((one.rounds for one in found if not one.reason), default=0)
            return f"{text} (in {rounds:,} rounds so far)" if rounds else text

        return Row(claim, "", FIGURE.sub(figure, ours), "", 0, 0.0, verdict, reason)

    def _row(self, name: str, figure: float, records: Mapping[str, Record]) -> Row:
        planned = [cell.name for cell in cells([f"{self.group}/{name}-s*"])]
        assert planned, f"tables.yaml: {self.group} has no cell {name}"
        measure = self.measure
        if factor := _matching(self.factors, name):
            measure = replace(measure, factor=factor)
        found = [records[cell] for cell in planned if cell in records]
        outcomes = [measure.outcome(one, figure) for one in found]
        ours = [value for value in outcomes if value is not None]
        reached = sum(map(math.isfinite, ours))
        seeds = f"{reached} of {len(planned)}"
        rounds, hours = sum(one.rounds for one in found), sum(one.hours for one in found)
        paper, reason = self.measure.text(figure), _matching(self.reasons, name) or ""
        if not reached:
            so_far = max((one.rounds for one in found), default=0)
            text = f"not yet, in {so_far:,} rounds" if so_far else "not run"
            judged = "outside" if found and len(ours) == len(found) else "open"
            reason = reason if judged == "outside" else ""
            return Row(name, paper, text, seeds, rounds, hours, judged, reason)
        text = self.measure.text(statistics.median(ours))
        if len(ours) > 1:
            text += f" ({self.measure.text(min(ours))} to {self.measure.text(max(ours))})"
        judged = verdict(self.measure, ours, figure)
        if not measure.is_settled(found, figure):
            text, judged = f"{text} so far", "open"
        return Row(
            name, paper, text, seeds, rounds, hours, judged, reason if judged == "outside" else ""
        )


T = TypeVar("T")


def _matching(by_pattern: Mapping[str, T], name: str) -> T | None:
    """Return the value of the first pattern that matches a cell."""
    return next((value for pattern, value in by_pattern.items() if fnmatch(name, pattern)), None)


def tables() -> list[Table]:
    """Return all tables of tables.yaml."""
    return [
        Table.parse(tree) for tree in yaml.safe_load((HERE / "papers" / "tables.yaml").read_text())
    ]


def page(text: str) -> str:
    """Return the page with its generated parts made anew."""
    made = tables()
    text = _put(text, "overview", "".join(_overview(made)))
    for document in dict.fromkeys(table.document for table in made):
        own = [table for table in made if table.document == document]
        text = _put(text, f"tables of {document}", "".join(map(_section, own)))
    return text


def main() -> None:
    """Write the page's tables anew."""
    PAGE.write_text(page(PAGE.read_text()))


def _put(text: str, name: str, part: str) -> str:
    before, begin, rest = text.partition(BEGIN.format(name))
    _, end, after = rest.partition(END.format(name))
    assert begin, f"{Path(PAGE.name)}: no mark {BEGIN.format(name)!r}"
    assert end, f"{Path(PAGE.name)}: no mark {END.format(name)!r}"
    return f"{before}{begin}\n{part}\n{end}{after}"


def _overview(made: list[Table]) -> Iterator[str]:
    counted = [(table, Counter(row.count_as for row in table.rows())) for table in made]
    total = sum((counts for _, counts in counted), Counter[str]())
    yield (
        f"Of {sum(total.values())} rows, {total['within']} are within the paper's range, "
        f"{total['outside, with a reason']} are outside with a reason that an experiment shows, "
        f"{total['outside, no reason yet']} are outside without one, and {total['open']} are open: "
        "not run, or not run far enough.\n\n"
        f"{_instructions()}\n\n"
    )
    yield "| document | table or figure | rows | " + " | ".join(COUNTED) + " |\n"
    yield "|---|---|--:|" + "--:|" * len(COUNTED) + "\n"
    for table, counts in counted:
        numbers = " | ".join(str(counts[column]) for column in COUNTED)
        yield f"| {table.document} | {table.name} | {sum(counts.values())} | {numbers} |\n"


def _instructions() -> str:
    """Return the sentence that counts the runs by the vector instructions that they ran on."""
    groups = dict.fromkeys(cell.group for cell in cells())
    ran_on = Counter(record.instructions for group in groups for record in load(group).values())
    counts = ", ".join(f"{number} on {name}" for name, number in ran_on.most_common())
    return f"{sum(ran_on.values())} runs are behind them: {counts}; each record says on which."


def _section(table: Table) -> str:
    lines = [f"### {table.name[:1].upper()}{table.name[1:]}: {table.what}\n\n"]
    if table.note:
        lines.append(table.note.strip() + "\n\n")
    if table.group:
        lines.append(f"`python experiments/run.py {table.group}`\n\n")
    rows = table.rows()
    if table.paper:
        unit = "%" if table.measure.unit == "%" else table.measure.unit
        lines.append(
            f"| cell | paper, {unit} | fedmx, median (range) | seeds | rounds run | h | |\n"
            "|---|--:|--:|--:|--:|--:|---|\n"
        )
        lines += [
            f"| {row.name} | {row.paper} | {row.ours} | {row.seeds} | {row.rounds:,} | "
            f"{row.hours:.2f} | {row.verdict} |\n"
            for row in rows[: len(table.paper)]
        ]
        reasons = dict.fromkeys(row.reason for row in rows[: len(table.paper)] if row.reason)
        lines += [f"\nOutside: {reason.strip()}\n" for reason in reasons]
    if table.claims:
        lines.append("\n| the paper says | fedmx | |\n|---|---|---|\n")
        lines += [
            f"| {row.name} | {row.ours}{'. ' if row.reason else ''}{row.reason} | {row.verdict} |\n"
            for row in rows[len(table.paper) :]
        ]
    if (PAGE.parent / "papers" / f"{table.figure}.svg").is_file():
        lines.append(f"\n![{table.name}, {table.document}](papers/{table.figure}.svg)\n")
    return "".join([*lines, "\n"])


if __name__ == "__main__":
    main()
