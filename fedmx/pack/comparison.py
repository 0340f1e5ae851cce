"""Where a round that was run again parts from its records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedmx.course.chain import CHAIN, TIMES
from fedmx.run.records import plain
from fedmx.server.round import Round
from layers.logic import Times

_NOT_OF_A_CLIENT = frozenset({"traceback", *(one.name for one in fields(Times))})
"""Keys of a client's record that tell times, or where a machine keeps its files."""

_NOT_OF_A_ROUND = frozenset({CHAIN, *TIMES})

OF_THE_NETWORK = frozenset({"control_bytes", "file_bytes", "rejected_connections", "virtual"})
"""Keys of a deployed round's record that tell of connections; a simulation has none."""

_MOST_CLIENTS = 10


@dataclass(frozen=True)
class Parted:
    """The first round that parted.

    Attributes:
        round: its number.
        clients: whose updates, or records, are other ones.
        text: what parted, in words.
    """

    round: int
    clients: tuple[int, ...]
    text: str

    def record(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Parted:
        """Return what `record` gave."""
        return cls(record["round"], tuple(record["clients"]), record["text"])


def parting(
    record: Mapping[str, Any],
    clients: Sequence[Mapping[str, Any]],
    round: Round,
    deployed: bool = False,
) -> Parted | None:
    """Return where a round parts from its records; None: nowhere.

    Updates are compared first, then the model, then all else that was recorded but times.

    Args:
        record: the round's record.
        clients: the records of its clients.
        round: the round as it was run again.
        deployed: whether the recorded round went over a network.
    """
    number = round.round
    here = {one["client"]: one for one in round.client_records()}
    there = {one.get("client"): one for one in clients}
    keys = ("update_sha256", *(key for one in clients for key in one))
    for key in dict.fromkeys(keys):
        if key in _NOT_OF_A_CLIENT or (deployed and key == "reason"):
            continue
        others = _others(key, there, here)
        if others:
            what = "the updates" if key == "update_sha256" else f"{key!r} in the records"
            return Parted(number, others, f"round {number}: {what} of {_listed(others)} differ")
    if record.get("model_sha256") != round.model_sha256:
        text = f"round {number}: all updates are the same, and the model after them is another one"
        return Parted(number, (), text)
    again = plain(round.record(), "record")
    left_out = _NOT_OF_A_ROUND | (OF_THE_NETWORK if deployed else frozenset())
    for key in dict.fromkeys((*record, *again)):
        if key not in left_out and not _same(record.get(key), again.get(key)):
            values = f"{_shown(record.get(key))} in the pack, {_shown(again.get(key))} here"
            return Parted(number, (), f"round {number}: {key!r} in the record is {values}")
    return None


def _others(
    key: str, there: Mapping[Any, Mapping[str, Any]], here: Mapping[Any, Mapping[str, Any]]
) -> tuple[int, ...]:
    """Return the clients whose records differ in a key."""
    none: Mapping[str, Any] = {}
    return tuple(
        client
        for client in dict.fromkeys((*there, *here))
        if not _same(
            there.get(client, none).get(key), plain(here.get(client, none).get(key), "record")
        )
    )


def _same(one: object, other: object) -> bool:
    """Return whether two values have the same JSON, so that 1, 1.0 and true are three."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _listed(clients: Iterable[object]) -> str:
    names = [str(one) for one in clients]
    more = f" and {len(names) - _MOST_CLIENTS} more" if len(names) > _MOST_CLIENTS else ""
    return f"client{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_CLIENTS])}{more}"


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
