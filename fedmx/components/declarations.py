"""The tables of declarations in the documentation: what parts require, provide and exclude.

After a change of a part or of a rule, write the page again::

    python -m fedmx.components.declarations
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedmx.components.catalogue import components
from layers.logic.core.declaration import RULES, Condition, Need, Trait, declared

PAGE = Path(__file__).parents[2] / "docs" / "parts.md"
BEGIN, END = "<!-- declarations -->\n", "<!-- end of declarations -->\n"


def with_tables(page: str) -> str:
    """Return the page (Markdown) with the tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n".join(_tables())
    return f"{before}{BEGIN}\n{tables}\n\n{END}{after}"


def _tables() -> Iterator[str]:
    """Yield the lines of both tables."""
    kinds = ("selectors", "aggregators", "hooks", "trainers", "attacks")
    parts = [(name, make()) for kind in kinds for name, make in components()[kind].items()]
    yield "| declaration | the part | parts of fedmx, with default settings |"
    yield "|---|---|---|"
    for one in (*Need, *Trait):
        names = dict.fromkeys(f"`{name}`" for name, part in parts if one in declared(part))
        yield f"| `{one}` | {one.value} | {', '.join(names) or '-'} |"
    yield ""
    yield "### What cannot be combined"
    yield ""
    yield "fedmx refuses these before anything runs."
    yield ""
    yield "| A | B | why fedmx refuses A and B together | what to do |"
    yield "|---|---|---|---|"
    for rule in RULES:
        names = {"one": "A", "other": "B", "value": "B"}
        texts = (text.format(**names) for text in (rule.why, rule.advice))
        without = "without " if rule.needed else ""
        yield f"| {_cell(rule.one)} | {without}{_cell(rule.other)} | {' | '.join(texts)} |"


def _cell(one: Need | Trait | Condition) -> str:
    return one.value if isinstance(one, Condition) else f"`{one}`"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), encoding="utf-8")
