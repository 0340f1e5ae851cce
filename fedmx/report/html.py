"""HTML elements; texts in them are escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

_VOID = ("input", "wbr")  # elements without an end
_MOST_COLUMNS = 4  # more runs have a row each instead of a column


class Html(str):
    """A text that is HTML and is not escaped again; only this package creates it."""

    __slots__ = ()


Child = str | int | None


def element(name: str, /, *children: Child, **attributes: str | None) -> Html:
    """Return an element without the children and attributes that are None.

    ``element("td", "a<b", class_="n")`` gives ``<td class="n">a&lt;b</td>``.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


@cache
def script() -> str:
    """Return the script of pages with figures."""
    return _file("page.js")


def policy(script: str = "") -> str:
    """Return the content security policy of a page: it loads nothing, and runs this script alone.

    Images are in the page itself.
    """
    parts = ["default-src 'none'", "img-src data:", "style-src 'unsafe-inline'"]
    if script:
        sha256 = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        parts.append(f"script-src 'sha256-{sha256}'")
    return "; ".join(parts)


def document(title: str, body: str, reloaded_s: int | None = None, script: str = "") -> str:
    """Return a whole page; what UTF-8 cannot hold, such as half of a pair, is a question mark.

    Args:
        title: its title.
        body: its elements.
        reloaded_s: after how many seconds it reloads itself; None: never.
        script: runs in it; see `policy`.
    """
    refresh = f'<meta http-equiv="refresh" content="{reloaded_s}">\n' if reloaded_s else ""
    text = Template(_file("page.html")).substitute(
        policy=policy(script),
        refresh=refresh,
        title=join(f"fedmx: {title}"),
        style=_file("style.css"),
        body=body,
        script=f"<script>{script}</script>\n" if script else "",
    )
    return text.encode(errors="replace").decode()


def _file(name: str) -> str:
    return (files("fedmx.report") / name).read_text(encoding="utf-8")


def card(label: str, value: str, more: str | None = None) -> Html:
    """Return a tile with a value."""
    return element(
        "div",
        element("div", label, class_="label"),
        element("div", value, class_="value"),
        element("div", more, class_="more") if more else None,
        class_="card",
    )


def join(*children: Child) -> Html:
    """Return the children one after the other."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(str(child))
            for child in children
            if child is not None
        )
    )


def table(head: list[Child] | None, rows: list[list[Child]], **attributes: str | None) -> Html:
    """Return a table in a box that scrolls sideways; the first cell of a row is its heading."""
    top = None
    if head is not None:
        cells = [element("th", cell, scope="col") for cell in head]
        top = element("thead", element("tr", *cells))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", c) for c in row[1:]))
        for row in rows
    ]
    inner = element("table", top, element("tbody", *body), **attributes)
    return element("div", inner, class_="scroll", tabindex="0")


def turned(
    corner: str, names: Sequence[Child], rows: Sequence[tuple[str, Sequence[Child]]], class_: str
) -> Html:
    """Return a table with a column for each run or group, or a row if there are many.

    Args:
        corner: the text above the headings of the rows.
        names: the names of the runs or groups.
        rows: a heading, and a cell for each run or group.
        class_: of the table.
    """
    if len(names) <= _MOST_COLUMNS:
        return table([corner, *names], [[label, *cells] for label, cells in rows], class_=class_)
    runs: list[list[Child]] = [
        [name, *(cells[place] for _, cells in rows)] for place, name in enumerate(names)
    ]
    return table(["run", *(label for label, _ in rows)], runs, class_=f"{class_} turned")
