"""The table of the five documents, which docs/papers.md has, in README.md."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
BEGIN, END = "<!-- documents -->\n", "<!-- end of documents -->\n"
_LINK = re.compile(r"\]\(([^)]+)\)")


def with_documents(readme: str) -> str:
    """Return the README (Markdown) with the table of docs/papers.md."""
    before, _, rest = readme.partition(BEGIN)
    table = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    return f"{before}{BEGIN}{_LINK.sub(_from_root, table)}{END}{rest.partition(END)[2]}"


def _from_root(link: re.Match[str]) -> str:
    return f"]({posixpath.normpath(posixpath.join(PAGE.parent.name, link[1]))})"
