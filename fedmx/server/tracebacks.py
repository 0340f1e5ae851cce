"""The tracebacks in clients.jsonl, which clients write: each once, and a limited size for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from layers.logic.record_size import recorded_bytes

MOST_BYTES = 256 << 10  # of the recorded tracebacks of one client, in one process of the server


class Tracebacks:
    """Replaces a traceback that is recorded already, and those of a client that has had its share.

    All other texts and numbers of a client have a limit for each message.
    """

    def __init__(self) -> None:
        self._recorded: dict[bytes, tuple[int, int]] = {}  # by digest: the round and the client
        self._bytes: Counter[int] = Counter()

    def recorded(self, lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return lines of clients.jsonl as they are recorded."""
        return [{**line, "traceback": self._of(line)} for line in lines]

    def _of(self, line: Mapping[str, Any]) -> str:
        text, round, client = line["traceback"], line["round"], line["client"]
        if not text:
            return ""
        digest = sha256(text.encode("utf-8", "backslashreplace")).digest()
        if digest in self._recorded:
            first, whose = self._recorded[digest]
            return f"the same as in round {first}, of client {whose}"
        size = recorded_bytes(text)
        if self._bytes[client] + size > MOST_BYTES:
            return f"left out: this client's tracebacks have {MOST_BYTES} bytes already"
        self._bytes[client] += size
        self._recorded[digest] = round, client
        return str(text)
