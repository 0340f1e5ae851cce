"""The hashes of a run: of models, of messages, and the chain that links its rounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from blake3 import blake3

from fedmx.protocol.messages import CODEC
from fedmx.run.records import plain

CHAIN = "chain"
TIMES = ("seconds", "elapsed_s", "clock_s", "clock_elapsed_s")
"""The keys of a round's record that tell times, which differ whenever a run is repeated."""

START = ""
"""The link before the first round."""


def chained(previous: str, record: Mapping[str, Any], updates: Iterable[str], model: str) -> str:
    """Return a round's link of the chain: SHA-256 (hex) of the link before and of the round.

    Args:
        previous: the link of the round before; `START` in the first round.
        record: the round's line of rounds.jsonl; its times and its own link do not count.
        updates: the hashes of the counted updates, in the order of the plan.
        model: the hash of the model after the round.
    """
    lasting = {key: value for key, value in record.items() if key not in (*TIMES, CHAIN)}
    text = json.dumps(plain(lasting, "record"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256("\n".join((previous, text, *updates, model)).encode()).hexdigest()


def link_of(previous: str, record: Mapping[str, Any], updates: Mapping[int, Sequence[str]]) -> str:
    """Return the link that the records of a round make.

    Args:
        previous: the link of the round before; `START` in the first round.
        record: the round's line of rounds.jsonl.
        updates: the hashes of its counted updates by client; see `updates_of`.
    """
    participants = dict.fromkeys(record["participants"])
    sent = (one for client in participants for one in updates.get(client, ()))
    return chained(previous, record, sent, record["model_sha256"])


def updates_of(clients: Iterable[Mapping[str, Any]]) -> dict[int, dict[int, tuple[str, ...]]]:
    """Return the hashes of the counted updates by round, then by client.

    Args:
        clients: lines of clients.jsonl.
    """
    found: dict[int, dict[int, tuple[str, ...]]] = {}
    for record in clients:
        if hashes := record.get("update_blake3"):
            of_round = found.setdefault(record["round"], {})
            of_round[record["client"]] = (*of_round.get(record["client"], ()), *hashes)
    return found


def model_hash(weights: np.ndarray, buffers: np.ndarray) -> str:
    """Return the SHA-256 (hex) of a model: its float32 values, little-endian, buffers last.

    Args:
        weights: float32 (d,).
        buffers: float32 (b,).
    """
    digest = hashlib.sha256()
    for vector in (weights, buffers):
        digest.update(np.ascontiguousarray(vector, "<f4").data)
    return digest.hexdigest()


def message_hash(message: object) -> str:
    """Return the BLAKE3 hash (hex) of a message as it is encoded for the network.

    A server hashes every update that it receives. On a CPU without instructions for SHA-256, that
    hash took a third of the server's time; BLAKE3 takes a fourteenth of it.
    """
    digest = blake3()
    for buffer in CODEC.encode(message).buffers:
        digest.update(buffer)
    return digest.hexdigest()
