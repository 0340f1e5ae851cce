"""What a notebook shows for an object: a heading, and a table of a few rows."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def card(
    title: str, rows: Iterable[tuple[str, object]], more: tuple[str, str] | None = None
) -> str:
    """Return HTML; all texts are escaped.

    Args:
        title: the heading.
        rows: a name and a value each; those whose value is None are left out.
        more: a heading and a longer text that is folded away.
    """
    cell = "text-align:left;padding:0 1em 0 0;background:none"
    body = "".join(
        f'<tr><th style="{cell};font-weight:normal;opacity:.7">{escape(name)}</th>'
        f'<td style="{cell}">{escape(str(value))}</td></tr>'
        for name, value in rows
        if value is not None
    )
    folded = ""
    if more is not None:
        heading, text = more
        folded = f"<details><summary>{escape(heading)}</summary><pre>{escape(text)}</pre></details>"
    return f"<div><strong>{escape(title)}</strong><table>{body}</table>{folded}</div>"
