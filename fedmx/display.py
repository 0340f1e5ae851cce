"""Texts and tables of objects: HTML for notebooks, pandas frames, and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedmx.errors import FedmxError
from layers.extras import install

if TYPE_CHECKING:
    from pandas import DataFrame


def card(
    title: str, rows: Iterable[tuple[str, object]], more: tuple[str, str] | None = None
) -> str:
    """Return the HTML of a notebook's output; all texts are escaped.

    Args:
        title: the heading.
        rows: names and values; rows with the value None are left out.
        more: a heading and a longer text, which is collapsed.
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


def same_keys(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the keys of all of them; None where a row has no value."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in keys} for row in rows]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as CSV with a header line; None is an empty field."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def frame(rows: Sequence[Mapping[str, Any]], rounds: Sequence[int] | None = None) -> DataFrame:
    """Return rows as a pandas frame, indexed by rounds if they are given.

    Raises:
        FedmxError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise FedmxError(f"a frame needs pandas; {install('pandas')}") from None
    index = None if rounds is None else pandas.Index(rounds, name="round", dtype="int64")
    return pandas.DataFrame(rows, index=index)


def scalars(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without its lists, mappings and checksums."""
    return {
        key: value
        for key, value in record.items()
        if not isinstance(value, list | tuple | Mapping) and key not in ("checksum", "chain")
    }


def frame_of(records: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return a frame with a row for each round, indexed by the number of the round.

    Raises:
        FedmxError: pandas is not installed.
    """
    rows = [scalars(record) for record in records]
    found = frame(rows, [row.pop("round") for row in rows])
    # Columns without any value become numbers, which can be drawn and averaged.
    empty = [name for name in found.columns if found[name].isna().all()]
    return found.astype(dict.fromkeys(empty, "float64"))
