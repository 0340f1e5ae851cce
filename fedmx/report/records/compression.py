"""What a direction's bytes are against the same messages with every value in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.report.records.quantities import finite, mebibytes

FLOAT32_BYTES = 4
ABOUT = 0.05  # a difference of this share is that of the messages' headers


@dataclass(frozen=True)
class Compression:
    """One direction of a run.

    Attributes:
        sent_bytes: of the encoded messages, as measured.
        float32_bytes: 4 x values of the model x messages.
        rounds: in which they were sent, 1 or more.
    """

    sent_bytes: float
    float32_bytes: float
    rounds: int

    @property
    def ratio(self) -> float:
        """How many times as much float32 would be."""
        return self.float32_bytes / self.sent_bytes

    @property
    def a_round(self) -> str:
        """What was sent in a round, on average."""
        return mebibytes(self.sent_bytes / self.rounds)

    @property
    def in_float32(self) -> str:
        """What float32 would have been."""
        return mebibytes(self.float32_bytes / self.rounds)

    def __str__(self) -> str:
        ratio = self.ratio
        if abs(ratio - 1) < ABOUT:
            against = "as large as"
        elif ratio > 1:
            against = f"{ratio:,.3g} x smaller than"
        else:
            against = f"{1 / ratio:,.3g} x larger than"
        return f"{self.a_round} a round, {against} float32 ({self.in_float32})"


def compression(
    facts: Mapping[str, Any], records: Sequence[Mapping[str, Any]], bytes_key: str, count_key: str
) -> Compression | None:
    """Return a direction's compression; None for a run whose records do not tell.

    Args:
        bytes_key: of a round's bytes in this direction, ``up_bytes`` or ``down_bytes``.
        count_key: of a round's messages in this direction that have a model or an update in them.
    """
    values = [finite(facts.get(name)) for name in ("parameters", "buffers")]
    told = [(finite(one.get(bytes_key)), finite(one.get(count_key))) for one in records]
    sent = sum(size for size, _ in told if size is not None)
    messages = sum(count for _, count in told if count is not None)
    if any(None in row for row in (values, *told)) or sent <= 0 or messages <= 0:
        return None
    dense = FLOAT32_BYTES * sum(value for value in values if value is not None) * messages
    return Compression(sent, dense, len(told)) if dense > 0 else None
