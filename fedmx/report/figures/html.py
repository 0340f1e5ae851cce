"""HTML elements; a text in them is escaped unless it is HTML already."""

from __future__ import annotations

from html import escape


class Html(str):
    """A text that is HTML and is not escaped again; only this folder makes it."""

    __slots__ = ()


Child = str | int | None


def element(name: str, *children: Child, **attributes: str | None) -> Html:
    """Return an element; children and attributes that are None are left out.

    ``element("td", "a<b", class_="n")`` gives ``<td class="n">a&lt;b</td>``.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


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
    return element("div", inner, class_="scroll")
