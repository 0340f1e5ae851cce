"""The tables of keys in ``docs/experiment-file.md``."""

from __future__ import annotations

from collections.abc import Iterator

from fedmx.experiment.schema import KEYS

_HEADER = "| key | type | default | meaning |"


def with_tables(page: str) -> str:
    """Return a page (Markdown) with the tables of the keys as they are now.

    The table below a heading ``### compute: ...`` has the keys of this section; the table below
    another heading has the keys of all sections without a heading of their own.
    """
    sections = [name for name in KEYS if "." not in name]
    own = [name for name in sections if f"\n### {name}: " in page]
    lines: list[str] = []
    heading, in_table = "", False
    for line in page.splitlines():
        if line.startswith("### "):
            heading = line.removeprefix("### ").partition(":")[0]
        if line == _HEADER:
            rest = [name for name in sections if name not in own]
            lines += _table([heading] if heading in own else rest)
        in_table = line.startswith("|") and (in_table or line == _HEADER)
        if not in_table:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _table(sections: list[str]) -> Iterator[str]:
    """Yield the lines of the table of some sections."""
    yield from (_HEADER, "|---|---|---|---|")
    for name, key in KEYS.items():
        if name.partition(".")[0] in sections:
            cells = [f"`{name}`", key.takes, key.default, key.text]
            yield f"| {' | '.join(one.replace('|', chr(92) + '|') for one in cells)} |"
