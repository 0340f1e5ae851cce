"""The table of the five documents, which docs/papers.md has, in README.md and README.zh-CN.md."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
BEGIN, END = "<!-- documents -->\n", "<!-- end of documents -->\n"
_HEAD = 2  # lines of a table before its rows
_LINK = re.compile(r"\]\(([^)]+)\)")


def with_documents(readme: str) -> str:
    """Return a README (Markdown) with the rows of docs/papers.md below its own head."""
    before, head, after = _parts(readme)
    rows = [_LINK.sub(_from_root, row) for row in _parts(PAGE.read_text("utf-8"))[1][_HEAD:]]
    return "\n".join([f"{before}{BEGIN}", *head[:_HEAD], *rows, "", f"{END}{after}"])


def _parts(page: str) -> tuple[str, list[str], str]:
    """Return what stands before the table, its lines, and what stands after it."""
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    return before, table.strip().splitlines(), after


def _from_root(link: re.Match[str]) -> str:
    return f"]({posixpath.normpath(posixpath.join(PAGE.parent.name, link[1]))})"
