"""The tables of docs/papers.md, docs/papers and experiments/rows, from the records.

    python experiments/tables.py

rewrites the parts of the pages between the marks ``<!-- overview -->`` and ``<!-- tables -->`` and
their ends; the rest is written by hand. papers/*/tables.yaml defines the tables. The pages in
docs/papers say what came out of each table; those in rows have every row.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from cells import DOCUMENTS, HERE, Cell, cells, matching, parsed
from criteria import verdicts
from measures import Measure, verdict
from prices import hours_left
from prices import text as price_text
from records import Record, load
from summaries import conclusion, summary
from texts import Numbers

PAGE = HERE.parent / "docs" / "papers.md"
FOLDER = HERE.parent / "docs" / "papers"
ROWS = HERE / "rows"
BEGIN, END = "<!-- {} -->\n", "<!-- end of {} -->\n"


@dataclass(frozen=True)
class Reason:
    """Why a row differs from the paper.

    Attributes:
        text: the reason.
        shown_by: the groups or cells whose records show it, or scripts of this folder that do.
    """

    text: str
    shown_by: tuple[str, ...]

    @classmethod
    def parse(cls, tree: Mapping[str, Any]) -> Reason:
        """Return a reason of an entry of tables.yaml."""
        return cls(tree["text"].strip(), tuple(tree["shown_by"]))

    @property
    def is_shown(self) -> bool:
        """Whether there is a record of each of them."""
        return all(map(_has_record, self.shown_by))

    def commands(self) -> str:
        """Return the commands that show it, as the page prints them."""
        scripts = [one for one in self.shown_by if _is_script(one)]
        runs = [one for one in self.shown_by if not _is_script(one)]
        if runs:
            quoted = (f'"{one}"' if "*" in one else one for one in runs)
            scripts = [" ".join(["run.py", *quoted]), *scripts]
        return " and ".join(f"`python experiments/{one}`" for one in scripts)


def _is_script(shown_by: str) -> bool:
    return shown_by.endswith(".py")


def _has_record(pattern: str) -> bool:
    if _is_script(pattern):
        assert (HERE / pattern).is_file(), f"tables.yaml: there is no {pattern}"
        return True
    return any(cell.name in load(cell.group) for cell in cells([pattern]))


@dataclass(frozen=True)
class Row:
    """One figure of a paper, or one claim, and fedmx's result.

    Attributes:
        name: the cell without its seed, or the claim.
        paper: the paper's figure.
        ours: our median, least and greatest.
        seeds: how many seeds have come to the figure, or the runs of a claim that have begun, and
            how many are planned.
        rounds: of all seeds together, and of how many, if there are more to be run.
        hours: of all seeds together.
        verdict: ``within``, ``outside`` or ``open``.
        reason: why it differs, from an experiment; None if that is open.
        other_target: the verdict with the table's other target.
        cells: those that decide it.
        known_hours: what it would cost, if no record shows it.
    """

    name: str
    paper: str
    ours: str
    seeds: str
    rounds: str
    hours: float
    verdict: str
    reason: Reason | None = None
    other_target: str = "open"
    cells: tuple[Cell, ...] = ()
    known_hours: float = 0.0

    @property
    def hours_left(self) -> float | None:
        """The hours of one core that an open row would take, at most; None: not known."""
        shown = hours_left(self.cells) if self.cells else None
        return self.known_hours or None if shown is None else shown

    @property
    def count_as(self) -> str:
        """The column of the overview that counts the row."""
        if self.verdict != "outside":
            return self.verdict
        if self.reason:
            return "outside, with a reason"
        if self.other_target == "within":
            return "outside, explained by another target"
        return "outside, without a reason"


COUNTED = (
    "within",
    "outside, with a reason",
    "outside, explained by another target",
    "outside, without a reason",
    "open",
)


@dataclass(frozen=True)
class Table:
    """A table or a figure of a document, as tables.yaml has it.

    Attributes:
        tries: whether the table tries another reading, so that the overview counts it apart.
        other_target: one other target for all cells. A cell that is outside, and within with this
            target, is explained by it.
        stored: a file in records/ with the values of each cell, by seed, instead of runs.
    """

    document: str
    name: str
    group: str
    what: str
    measure: Measure = field(default_factory=Measure)
    paper: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    claims: tuple[Mapping[str, Any], ...] = ()
    note: str = ""
    figure: str = ""
    tries: bool = False
    other_target: float | None = None
    stored: str = ""

    @classmethod
    def parse(cls, tree: Mapping[str, Any]) -> Table:
        """Return a table of an entry of tables.yaml."""
        measure = Measure(**tree.get("measure", {}))
        reasons = {pattern: Reason.parse(one) for pattern, one in tree.get("reasons", {}).items()}
        claims = tuple(tree.get("claims", ()))
        return cls(**{**tree, "measure": measure, "reasons": reasons, "claims": claims})

    def rows(self) -> list[Row]:
        """Return a row for each of the paper's figures, and for each of its claims."""
        if self.stored:
            return [self._stored(name, float(figure)) for name, figure in self.paper.items()]
        records = load(self.group) if self.group else {}
        rows = [self._row(name, float(figure), records) for name, figure in self.paper.items()]
        return rows + [self._claim(**claim) for claim in self.claims]

    def _stored(self, name: str, figure: float) -> Row:
        values = json.loads((HERE / "records" / self.stored).read_text())[name][self.measure.of]
        seeds = f"{len(values)} of {len(values)}"
        judged = verdict(self.measure, values, figure)
        return Row(name, f"{figure:g}", self._median(values), seeds, "", 0.0, judged)

    def _claim(
        self,
        claim: str,
        ours: str,
        holds: Sequence[str] = (),
        reason: Mapping[str, Any] | None = None,
        hours: float = 0.0,
    ) -> Row:
        """Return the row of a claim; its runs are those whose numbers it names."""
        numbers = Numbers(self.group, progress=True)
        text = numbers.fill(ours)
        deciding = Numbers(self.group)
        found = verdicts(holds, deciding)
        numbers.runs.update(deciding.runs)
        verdict = "open" if None in found else "within" if all(found) else "outside"
        begun = [record for record in numbers.runs.values() if record is not None]
        seeds = f"{len(begun)} of {len(numbers.runs)}" if numbers.runs else ""
        rounds, spent = f"{sum(one.rounds for one in begun):,}", sum(one.hours for one in begun)
        why = self._shown(Reason.parse(reason) if reason else None, verdict)
        row = Row(claim, "", text, seeds, rounds, spent, verdict, why)
        return replace(row, cells=tuple(deciding.runs), known_hours=hours)

    def _row(self, name: str, figure: float, records: Mapping[str, Record]) -> Row:
        planned = matching(self.group, name)
        assert planned, f"tables.yaml: {self.group} has no cell {name}"
        measure = self.measure
        if factor := _by_pattern(self.factors, name):
            measure = replace(measure, factor=factor)
        found = [records[cell.name] for cell in planned if cell.name in records]
        outcomes = [measure.outcome(one, figure) for one in found]
        ours = [value for value in outcomes if value is not None]
        reached = sum(map(math.isfinite, ours))
        seeds = f"{reached} of {len(planned)}"
        hours = sum(one.hours for one in found)
        if reached:
            text = self._median(ours)
            judged = verdict(self.measure, ours, figure)
        else:
            judged = "outside" if found and len(ours) == len(found) else "open"
            so_far = max((one.rounds for one in found), default=0)
            word = "not reached in" if judged == "outside" else "not yet, in"
            text = f"{word} {_rounds(so_far)}" if so_far else "not run"
        if reached and measure.unit == "%" and measure.what in ("best", "last"):
            what, word = {"best": ("last", "last round"), "last": ("best", "best")}[measure.what]
            beside = replace(measure, what=what)
            values = [value for one in found if (value := beside.of_record(one)) is not None]
            text += f", {word} {self.measure.text(statistics.median(values))}"
        if reached and not measure.is_settled(found, figure):
            text, judged = f"{text}, not finished", "open"
        rounds = f"{sum(one.rounds for one in found):,}"
        of_all = measure.target is None and measure.rounds is None
        if of_all and not all(one.reason for one in found):
            rounds += f" of {sum(cell.experiment().rounds for cell in planned):,}"
        reason = self._shown(_by_pattern(self.reasons, name), judged)
        paper, other = self.measure.theirs_text(figure), "open"
        if self.other_target and judged == "outside":
            again = replace(self, measure=replace(self.measure, target=self.other_target))
            other = replace(again, other_target=None)._row(name, figure, records).verdict
        row = Row(name, paper, text, seeds, rounds, hours, judged, reason, other)
        return replace(row, cells=tuple(planned))

    def _shown(self, reason: Reason | None, verdict: str) -> Reason | None:
        """Return the reason with its numbers if the row is outside and records show it."""
        if not reason or verdict != "outside" or not reason.is_shown:
            return None
        return replace(reason, text=Numbers(self.group).fill(reason.text))

    def explained(self, row: Row) -> str:
        """Return the other target that explains a row, as the page prints it."""
        if row.count_as != "outside, explained by another target" or self.other_target is None:
            return ""
        target = f"{100 * self.other_target:g} %" if self.other_target < 1 else self.other_target
        return f"; within to {target}"

    def _median(self, ours: Sequence[float]) -> str:
        """Return the median of the seeds and their range; infinity: one has missed the target."""
        finite = [value for value in ours if math.isfinite(value)]
        middle, least = statistics.median(ours), self.measure.text(min(ours))
        if len(finite) == len(ours):
            text = self.measure.text(middle)
            return f"{text} ({least} to {self.measure.text(max(ours))})" if len(ours) > 1 else text
        missed = f"not reached with {len(ours) - len(finite)} of {len(ours)} seeds"
        if len(finite) == 1:
            return f"{least}; {missed}"
        return f"{least} to {self.measure.text(max(finite))}; {missed}"


def _rounds(number: int) -> str:
    return f"{number:,} round{'' if number == 1 else 's'}"


T = TypeVar("T")


def _by_pattern(by_pattern: Mapping[str, T], name: str) -> T | None:
    """Return the value of the first pattern that matches a cell."""
    return next((value for pattern, value in by_pattern.items() if fnmatch(name, pattern)), None)


def tables() -> list[Table]:
    """Return all tables, document by document."""
    return [Table.parse(tree) for document in parsed("tables.yaml") for tree in document]


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page and its text with the generated part updated."""
    made = tables()
    yield PAGE, _put(PAGE, "overview", "".join(_overview(made)))
    for folder in DOCUMENTS:
        own = [table for table in made if _folder_of(table.document) == folder]
        for path, parts in (
            (FOLDER / f"{folder}.md", _results(own, folder)),
            (ROWS / f"{folder}.md", map(_section_of_rows, own)),
        ):
            yield path, _put(path, "tables", "".join(parts))


def main() -> None:
    """Update the pages' tables."""
    for path, text in pages():
        path.write_text(text)


def _folder_of(document: str) -> str:
    return {"STC with projection": "stc"}.get(document, document.lower())


def _put(path: Path, name: str, part: str) -> str:
    before, begin, rest = path.read_text().partition(BEGIN.format(name))
    _, end, after = rest.partition(END.format(name))
    assert begin, f"{path.name}: no mark {BEGIN.format(name)!r}"
    assert end, f"{path.name}: no mark {END.format(name)!r}"
    return f"{before}{begin}\n{part.rstrip()}\n\n{end}{after}"


def _overview(made: list[Table]) -> Iterator[str]:
    own = [table for table in made if not table.tries]
    total = sum(map(_counts, own), Counter[str]())
    rows = [row for table in own for row in table.rows()]
    cheap = [row for row in rows if (row.hours_left or 0) < 100]
    yield (
        f"Of {total.total()} rows, {total['within']} are within the paper's range, "
        f"{total['outside, with a reason']} are outside with a demonstrated reason, "
        f"{total['outside, explained by another target']} are outside and explained by another "
        f"target of their table, {total['outside, without a reason']} are outside without a "
        f"reason, and {total['open']} are open: not run, or not run far enough, which takes"
        f"{price_text(_hours_left(rows)).removeprefix(',')} of one core, and"
        f"{price_text(_hours_left(cheap)).removeprefix(',')} without rows of 100 h or more.\n\n"
        f"{_instructions()}\n\n"
    )
    words: dict[str, bool | None] = {"within": True, "outside": False, "open": None}
    judged = {(one.document, one.name): [words[row.verdict] for row in one.rows()] for one in own}
    yield from summary(judged)
    yield "\nThe rows, document by document:\n\n"
    yield from _head("document", "tables and figures")
    for document in dict.fromkeys(table.document for table in own):
        chosen = [table for table in own if table.document == document]
        link = f"[{document}](papers/{_folder_of(document)}.md)"
        yield _line(f"{link} | {len(chosen)}", sum(map(_counts, chosen), Counter[str]()))


def _counts(table: Table) -> Counter[str]:
    return Counter(row.count_as for row in table.rows())


def _hours_left(rows: Sequence[Row]) -> float | None:
    """Return the hours that all open rows take, each cell once; None if no row is open."""
    left = [row for row in rows if row.verdict == "open"]
    chosen = dict.fromkeys(cell for row in left for cell in row.cells)
    shown = [hours_left([cell]) or 0.0 for cell in chosen]
    return sum(shown) + sum(row.known_hours for row in left) if left else None


def _head(*columns: str) -> Iterator[str]:
    yield "| " + " | ".join([*columns, "rows", *COUNTED]) + " |\n"
    yield "|" + "---|" * len(columns) + "--:|" * (1 + len(COUNTED)) + "\n"


def _line(names: str, counts: Counter[str]) -> str:
    numbers = " | ".join(str(counts[column]) for column in COUNTED)
    return f"| {names} | {counts.total()} | {numbers} |\n"


def _instructions() -> str:
    """Return the sentence that counts the runs by their vector instructions."""
    groups = dict.fromkeys(cell.group for cell in cells())
    ran_on = Counter(record.instructions for group in groups for record in load(group).values())
    counts = ", ".join(f"{number} on {name}" for name, number in ran_on.most_common())
    total = sum(ran_on.values())
    return f"They are based on {total} runs ({counts}); each record has its instructions."


def _results(made: list[Table], folder: str) -> Iterator[str]:
    """Yield the sections of a document's tables, and a list of those with another reading."""
    if text := conclusion(made[0].document):
        yield f"{text}\n"
    yield from (_section(table, folder) for table in made if not table.tries)
    tries = [table for table in made if table.tries]
    if tries:
        yield "## Other interpretations\n\n"
        yield "The overview does not count these tables; the rows say what each tries.\n\n"
    for table in tries:
        yield f"- {_capital(table.name)}. {_capital(table.what)}. {_counted(table, folder)}\n"
    yield "\n"
    yield from filter(None, map(_figure, tries))


def _section(table: Table, folder: str) -> str:
    """Return what came out of a table: its counts, the reasons, and the figure."""
    reasons = "".join(_reasons(table.rows()))
    return (
        f"## {_capital(table.name)}\n\n"
        f"{_capital(table.what)}. {_counted(table, folder)}\n{reasons}\n{_figure(table)}"
    )


def _counted(table: Table, folder: str) -> str:
    """Return how many rows a table has and how they are judged, with a link to them."""
    rows = table.rows()
    counts = Counter(row.count_as for row in rows)
    texts = ", ".join(f"{counts[one]} {one}" for one in COUNTED if counts[one])
    texts += price_text(_hours_left(rows))
    words = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    anchor = _anchor(_capital(table.name))
    return f"[{words}](../../experiments/rows/{folder}.md#{anchor}): {texts}."


def _figure(table: Table) -> str:
    if not (FOLDER / f"{table.figure}.svg").is_file():
        return ""
    return f"![{table.name}, {table.document}]({table.figure}.svg)\n\n"


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    kept = "".join(one for one in heading.lower() if one.isalnum() or one in " -_")
    return kept.replace(" ", "-")


def _section_of_rows(table: Table) -> str:
    """Return all rows of a table."""
    lines = [f"## {_capital(table.name)}\n\n{_capital(table.what)}.\n\n"]
    if table.note:
        lines.append(Numbers(table.group).fill(table.note.strip()) + "\n\n")
    if table.group:
        lines.append(f"`python experiments/run.py {table.group}`\n\n")
    rows = table.rows()
    if table.paper:
        unit = "%" if table.measure.unit == "%" else table.measure.unit
        lines.append(
            f"| cell | paper, {unit} | fedmx, median (range) | seeds | rounds run | h | verdict |\n"
            "|---|--:|--:|--:|--:|--:|---|\n"
        )
        lines += [
            f"| {row.name} | {row.paper} | {row.ours} | {row.seeds} | {row.rounds} | "
            f"{row.hours:.2f} | {_verdict(row)}{table.explained(row)} |\n"
            for row in rows[: len(table.paper)]
        ]
    if table.claims:
        lines.append("\n" if table.paper else "")
        lines.append(
            "| the paper says | fedmx | runs | rounds run | h | verdict |\n"
            "|---|---|--:|--:|--:|---|\n"
        )
        for row in rows[len(table.paper) :]:
            runs = f"{row.seeds} | {row.rounds} | {row.hours:.2f}" if row.seeds else " | | "
            lines.append(f"| {row.name} | {row.ours} | {runs} | {_verdict(row)} |\n")
    for name, reason in _reasons_of(rows):
        lines.append(f"\n{name}: shown by {reason.commands()}.\n")
    return "".join([*lines, "\n"])


def _verdict(row: Row) -> str:
    return f"open{price_text(row.hours_left)}" if row.verdict == "open" else row.verdict


def _capital(text: str) -> str:
    """Return a text with a capital first letter, except for symbols such as q in q-FedAvg."""
    return text if text[1:2] == "-" else f"{text[:1].upper()}{text[1:]}"


def _reasons(rows: list[Row]) -> Iterator[str]:
    """Yield a paragraph for each reason, with the cells or the claims that it is for."""
    for names, reason in _reasons_of(rows):
        yield f"\nOutside, {names}: {reason.text}\n"


def _reasons_of(rows: list[Row]) -> Iterator[tuple[str, Reason]]:
    """Yield each reason with the names of its rows; what stands before its colon names a claim."""
    outside = [row for row in rows if row.verdict == "outside"]
    for reason in dict.fromkeys(row.reason for row in outside if row.reason is not None):
        names = "; ".join(row.name.partition(":")[0] for row in outside if row.reason == reason)
        yield names, reason


if __name__ == "__main__":
    main()
