"""The comparison of two versions of a round by their records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedmx.journal.chain import CHAIN, TIMES
from layers.logic import Times

BITS = ("update_blake3", "status")
"""The keys of a client's record about its update, and whether it counted."""

NOT_OF_A_CLIENT = frozenset({"traceback", *(one.name for one in fields(Times))})
"""Keys of a client's record that tell times, or where a machine keeps its files."""

NOT_OF_A_ROUND = frozenset({CHAIN, *TIMES})

OF_THE_NETWORK = frozenset(
    {
        "control_bytes",
        "file_bytes",
        "operator",
        "other_versions",
        "reason",
        "rejected_connections",
        "virtual",
    }
)
"""Keys that describe connections; they are not compared between a deployment and a simulation."""

_MOST_CLIENTS = 10  # in a text


@dataclass(frozen=True)
class Divergence:
    """The first round in which two versions of a run diverge.

    Attributes:
        round: its number.
        what: what differs: ``run`` (one version of the round does not exist), ``clients``,
            ``samples``, ``fate``, ``update``, ``fold`` (only the model) or ``records``.
        text: the difference in words.
        clients: the clients that differ, in the order of the plan.
    """

    round: int
    what: str
    text: str
    clients: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"round {self.round}: {self.text}"

    @property
    def client(self) -> int | None:
        """The first client that differs; None: no single client does."""
        return self.clients[0] if self.clients else None

    def record(self) -> dict[str, Any]:
        """Return it as values that JSON can hold."""
        return {**asdict(self), "clients": list(self.clients)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Divergence:
        """Return the divergence that `record` returned."""
        return cls(**{**record, "clients": tuple(record["clients"])})


@dataclass(frozen=True)
class RoundRecords:
    """The records of one version of a round, as JSON values.

    Attributes:
        round: the record of the round.
        clients: the records in the order of the plan, by client and by the place among the client's
            own ones. Where rounds wait, only the first record of a client is there: others are of
            updates that no task asked for.
    """

    round: Mapping[str, Any]
    clients: Mapping[tuple[int, int], Mapping[str, Any]]

    @classmethod
    def of(cls, round: Mapping[str, Any], clients: Iterable[Mapping[str, Any]]) -> RoundRecords:
        """Return the records of a round from its lines of rounds.jsonl and clients.jsonl."""
        found: dict[tuple[Any, int], Mapping[str, Any]] = {}
        seen: Counter[Any] = Counter()
        for record in clients:
            client = record.get("client")
            found.setdefault((client, seen[client] if "version" in record else 0), record)
            seen[client] += 1
        return cls(round, found)


def other_bits(round: int, one: RoundRecords, other: RoundRecords) -> Divergence | None:
    """Return how two versions of a round differ in their clients, updates or models.

    Returns:
        The divergence; None: the models are the same bits, and so are the updates of all clients.
    """
    if list(one.clients) != list(other.clients):
        text = f"its clients are {_numbers(one.clients)} against {_numbers(other.clients)}"
        return Divergence(round, "clients", text)
    places = [
        place
        for place, mine in one.clients.items()
        if any(not _same(mine.get(key), other.clients[place].get(key)) for key in BITS)
    ]
    if places:
        differing = tuple(dict.fromkeys(client for client, _ in places))
        client = differing[0]
        mine, theirs = one.clients[places[0]], other.clients[places[0]]
        if mine.get("samples") != theirs.get("samples"):
            text = f"client {client} has {mine.get('samples')} samples"
            text += f" against {theirs.get('samples')}"
            return Divergence(round, "samples", text, differing)
        if mine.get("status") != theirs.get("status"):
            text = f"client {client} was {_fate(mine)} against {_fate(theirs)}"
            return Divergence(round, "fate", text, differing)
        return Divergence(round, "update", f"the updates of {_listed(differing)} differ", differing)
    if one.round.get("model_sha256") == other.round.get("model_sha256"):
        return None
    updates = sum(bool(record.get("update_blake3")) for record in one.clients.values())
    text = f"the models after it differ, and its {updates} updates do not"
    return Divergence(round, "fold", text)


def other_records(
    round: int, one: RoundRecords, other: RoundRecords, left_out: Collection[str] = ()
) -> Divergence | None:
    """Return how two versions of a round with the same bits differ in their records.

    Args:
        round: number of the round.
        one: a version.
        other: the other version; it has the same clients.
        left_out: keys that are not compared, besides times and hashes.

    Returns:
        The divergence; None: nothing else differs.
    """
    keys = dict.fromkeys(key for one in one.clients.values() for key in one)
    for key in keys:
        if key in NOT_OF_A_CLIENT or key in left_out:
            continue
        differing = tuple(
            dict.fromkeys(
                place[0]
                for place, mine in one.clients.items()
                if not _same(mine.get(key), other.clients[place].get(key))
            )
        )
        if differing:
            text = f"the records of {_listed(differing)} differ in {key!r}"
            return Divergence(round, "records", text, differing)
    names = [
        key
        for key in dict.fromkeys((*one.round, *other.round))
        if key not in NOT_OF_A_ROUND
        and key not in left_out
        and not _same(one.round.get(key), other.round.get(key))
    ]
    if not names:
        return None
    values = f"{_shown(one.round.get(names[0]))} against {_shown(other.round.get(names[0]))}"
    text = f"the records differ in {', '.join(names)} ({names[0]}: {values})"
    return Divergence(round, "records", text)


def _listed(clients: Iterable[object]) -> str:
    """Return clients in words, as ``clients 1, 4``."""
    names = [str(one) for one in clients]
    more = f" and {len(names) - _MOST_CLIENTS} more" if len(names) > _MOST_CLIENTS else ""
    return f"client{'s' if len(names) > 1 else ''} {', '.join(names[:_MOST_CLIENTS])}{more}"


def _fate(record: Mapping[str, Any]) -> str:
    status, reason = record.get("status"), record.get("reason")
    return f"{status} ({reason})" if reason else str(status)


def _numbers(places: Iterable[tuple[int, int]]) -> str:
    return ", ".join(str(client) for client, _ in places) or "nobody"


def _same(one: object, other: object) -> bool:
    """Return whether two values have the same JSON, so that 1, 1.0 and true are three."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
