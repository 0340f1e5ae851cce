"""How objects show themselves: HTML for notebooks, and frames of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from pandas import DataFrame


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


def scalars(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without lists and mappings, and without what only guards the record."""
    return {
        key: value
        for key, value in record.items()
        if not isinstance(value, list | tuple | Mapping) and key not in ("checksum", "chain")
    }


def frame_of(records: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return a frame with a row for each round, whose index is the round's number.

    Raises:
        FedmxError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise FedmxError("to_pandas needs pandas; pip install fedmx[pandas]") from None
    rows = [scalars(record) for record in records]
    index = pandas.Index([row.pop("round") for row in rows], name="round", dtype="int64")
    frame = pandas.DataFrame(rows, index=index)
    # What was never measured is all None; as numbers it can be drawn and averaged.
    empty = [name for name in frame.columns if frame[name].isna().all()]
    return frame.astype(dict.fromkeys(empty, "float64"))
