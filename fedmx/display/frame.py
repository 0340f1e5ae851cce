"""Records of rounds as a frame of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedmx.errors import FedmxError

if TYPE_CHECKING:
    from pandas import DataFrame


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
