"""The tables of declarations in the documentation: what parts require, provide and exclude."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from fedmx.components.catalogue import NOUN_OF, components
from layers.logic.core.declaration import RULES, Condition, Need, Rule, Trait, declared

BEGIN, END = "<!-- declarations -->\n", "<!-- end of declarations -->\n"
KINDS = ("selectors", "aggregators", "hooks", "trainers", "attacks")

OF_PRIVACY: Mapping[str, Collection[Need]] = {
    "`central` and `dp-ftrl`": {Need.BOUNDED},
    "`local`, and with `noise` in `secure-sum`": {Need.HIDDEN},
}
PRIVACY = frozenset().union(*OF_PRIVACY.values())
"""What the kinds of privacy need; their tables are on their own page."""


def with_tables(page: str, tables: Callable[[], Iterator[str]]) -> str:
    """Return a page (Markdown) with the lines of its tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(tables())
    return f"{before}{BEGIN}\n{lines}\n\n{END}{after}"


def tables_of_parts() -> Iterator[str]:
    """Yield the lines of the tables of all declarations and of all rules."""
    yield "A part with the declaration"
    yield ""
    yield from (f"- `{one}` {one.value}" for one in (*Need, *Trait))
    yield ""
    yield "### What cannot be combined"
    yield ""
    yield (
        "fedmx refuses these before anything runs; the message says why, and what to change. "
        "[Privacy](algorithms/privacy.md#what-is-refused) lists what it refuses."
    )
    yield ""
    others: dict[str, list[str]] = {}
    for rule in RULES:
        if rule.one not in PRIVACY:
            word = "without" if rule.needed else "with"
            others.setdefault(_cell(rule.one), []).append(f"{word} {_cell(rule.other)}")
    yield from (f"- {one}: {'; '.join(found)}" for one, found in others.items())


def tables_of_privacy() -> Iterator[str]:
    """Yield the lines of the tables of what is refused beside privacy, by its reason."""
    for what, needs in OF_PRIVACY.items():
        yield from (f"| refused with {what} | why |", "|---|---|", *_refused(needs), "")


def _refused(needs: Collection[Need]) -> Iterator[str]:
    rules = [rule for rule in RULES if rule.one in needs]
    refused: dict[Rule, list[str]] = {rule: [] for rule in rules}
    for kind in KINDS:
        for name, make in components()[kind].items():
            part = make()
            for rule in rules:
                has = rule.other in declared(part)
                if not has if rule.needed == NOUN_OF[kind] else has and not rule.needed:
                    refused[rule].append(f"`{name}`")
                    break  # the first reason is the one that a user sees
    for rule, names in refused.items():
        conditions = [rule.other.value] if isinstance(rule.other, Condition) else []
        own = f"your own parts {'without' if rule.needed else 'with'} `{rule.other}`"
        what = ", ".join([*conditions, *names, *([] if conditions else [own])])
        other = "x" if conditions else "it"
        text = rule.why.format(one="privacy", other=other, value="it")
        yield f"| {what} | {text} |"


def _cell(one: Need | Trait | Condition) -> str:
    return one.value if isinstance(one, Condition) else f"`{one}`"


DOCS = Path(__file__).parents[1] / "docs"
PAGES: Mapping[Path, Callable[[], Iterator[str]]] = {
    DOCS / "parts.md": tables_of_parts,
    DOCS / "algorithms" / "privacy.md": tables_of_privacy,
}
"""The pages with tables, each with what yields their lines."""
