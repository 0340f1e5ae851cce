"""Do the records of a pack fit together: each round's link of the chain, and the final model?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from fedmx.course.chain import CHAIN, START, link_of, updates_of
from fedmx.course.hashes import model_hash
from fedmx.pack.errors import PackError
from fedmx.pack.pack_file import PackFile, check_no_fork
from fedmx.run import RunFolder

MODEL = "model.safetensors"


@dataclass(frozen=True)
class Recorded:
    """What the records of a run say.

    Attributes:
        rounds: how many rounds there are.
        chain: the last link of the chain.
        model_sha256: of the model after the last round.
    """

    rounds: int
    chain: str
    model_sha256: str


def check_records(pack: PackFile, folder: RunFolder) -> Recorded:
    """Check that the records in a pack fit together, and that its model is the last round's.

    Args:
        pack: the pack.
        folder: the run folder that was packed, or that the pack was unpacked to.

    Raises:
        PackError: they do not; the text has no file's name.
    """
    rounds, clients = folder.rounds(), list(folder.clients())
    if folder.damage:
        raise PackError(f"its records are damaged: {folder.damage[0]}")
    if folder.status != "done":
        raise PackError(f"its run is not done ({folder.status})")
    check_no_fork(folder.facts)
    if not isinstance(folder.facts.get("builds"), dict):
        raise PackError("its run.json does not say which builds of libraries it ran on")
    if not rounds:
        raise PackError("its run has no rounds")
    _check_clients(clients)
    updates, link = updates_of(clients), START
    for number, record in enumerate(rounds, start=1):
        if record.get("round") != number:
            raise PackError(f"the record of round {number} is missing")
        link = _checked_link(link, record, updates.get(number, {}))
    model = rounds[-1]["model_sha256"]
    if _model_in(pack) != model:
        raise PackError(f"{MODEL} is not the model after round {len(rounds)}")
    return Recorded(len(rounds), link, model)


def _checked_link(
    previous: str, record: Mapping[str, Any], updates: Mapping[int, Sequence[str]]
) -> str:
    """Return a round's link of the chain.

    Raises:
        PackError: it is not the recorded one, or none is recorded.
    """
    number = record["round"]
    if not isinstance(record.get("model_sha256"), str) or CHAIN not in record:
        raise PackError(
            f"the record of round {number} has no hashes: a fedmx from before there were any wrote "
            "it; run the experiment again"
        )
    counted = record.get("participants")
    if not isinstance(counted, list) or not all(isinstance(one, int) for one in counted):
        raise PackError(f"the record of round {number} does not say who took part")
    try:
        link = link_of(previous, record, updates)
    except (ValueError, RecursionError):  # such as half of a surrogate pair, or lists in lists
        raise PackError(f"the records of round {number} hold what no run writes") from None
    if link != record[CHAIN]:
        raise PackError(
            f"the records of round {number} do not fit the chain: they, or those of its clients, "
            "are not what was recorded"
        )
    return link


def _check_clients(clients: list[dict[str, Any]]) -> None:
    """Check that each record of a client has its round, its client and hashes.

    Raises:
        PackError: one has not.
    """
    for record in clients:
        match record:
            case {"round": int(), "client": int(), "update_sha256": [*hashes]}:
                if all(isinstance(one, str) for one in hashes):
                    continue
        raise PackError("a record of clients.jsonl has no hash of the client's update")


def _model_in(pack: PackFile) -> str:
    """Return the hash of the model in a pack.

    Raises:
        PackError: it has none, or not the tensors that its manifest names.
    """
    try:
        tensors = load(pack.members.get(MODEL, b""))
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise PackError(f"{MODEL} cannot be read ({' '.join(str(error).split())})") from None
    names = (*pack.manifest.weights, *pack.manifest.buffers)
    if len(set(names)) != len(names) or set(names) != set(tensors):
        raise PackError(f"{MODEL} does not have the tensors that the manifest names")
    if any(tensor.dtype != np.float32 for tensor in tensors.values()):
        raise PackError(f"{MODEL} has a tensor that is not float32")
    weights, buffers = (
        np.concatenate([np.zeros(0, np.float32), *(tensors[name].reshape(-1) for name in part)])
        for part in (pack.manifest.weights, pack.manifest.buffers)
    )
    return model_hash(weights, buffers)
