"""The bytes of one direction, compared with the same messages in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.report.records.quantities import finite, mebibytes, plain

FLOAT32_BYTES = 4
TOLERANCE = 0.05  # a smaller difference comes from the headers of messages


@dataclass(frozen=True)
class Compression:
    """The bytes of one direction of a run.

    Attributes:
        sent_bytes: the measured size of the encoded messages.
        float32_bytes: 4 x values of the model x messages.
        rounds: the rounds in which they were sent, 1 or more.
    """

    sent_bytes: float
    float32_bytes: float
    rounds: int

    @property
    def ratio(self) -> float:
        """float32_bytes / sent_bytes."""
        return self.float32_bytes / self.sent_bytes

    @property
    def per_round(self) -> str:
        """The mean size of a round's messages, with its unit."""
        return mebibytes(self.sent_bytes / self.rounds)

    @property
    def float32_per_round(self) -> str:
        """The mean size of a round's messages in float32, with its unit."""
        return mebibytes(self.float32_bytes / self.rounds)

    def __str__(self) -> str:
        ratio = self.ratio
        if abs(ratio - 1) < TOLERANCE:
            comparison = "as large as"
        elif ratio > 1:
            comparison = f"{plain(ratio)} x smaller than"
        else:
            comparison = f"{plain(1 / ratio)} x larger than"
        return f"{self.per_round} a round, {comparison} float32 ({self.float32_per_round})"


def compression(
    facts: Mapping[str, Any], records: Sequence[Mapping[str, Any]], bytes_key: str, count_key: str
) -> Compression | None:
    """Return the compression of a direction, or None if the records do not have the numbers.

    Args:
        facts: the facts of the run.
        records: the records of its rounds.
        bytes_key: the key of a round's bytes in this direction, ``up_bytes`` or ``down_bytes``.
        count_key: the key of a round's messages in this direction that hold a model or an update.
    """
    values = [finite(facts.get(name)) for name in ("parameters", "buffers")]
    rows = [(finite(one.get(bytes_key)), finite(one.get(count_key))) for one in records]
    sent = sum(size for size, _ in rows if size is not None)
    messages = sum(count for _, count in rows if count is not None)
    if any(None in row for row in (values, *rows)) or sent <= 0 or messages <= 0:
        return None
    dense = FLOAT32_BYTES * sum(value for value in values if value is not None) * messages
    return Compression(sent, dense, len(rows)) if dense > 0 else None
