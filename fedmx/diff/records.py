"""Where two runs part by their records: the first round by the chain, then the first client."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedmx.course.chain import CHAIN, TIMES
from fedmx.replay import RecordedRun
from fedmx.run import RunError


@dataclass(frozen=True)
class Parting:
    """Where two runs part, as far as their records say.

    Attributes:
        round: the first round that differs; None: none of those that both have.
        rounds: how many rounds both have.
        client: the first client of the round whose update or fate differs; None: no client's does.
        what: what differs: records, clients, samples, fate, update or fold.
        text: the same in words.
        number: how many updates of the round differ.
    """

    round: int | None
    rounds: int
    client: int | None = None
    what: str = ""
    text: str = ""
    number: int = 0


def parting(one: RecordedRun, other: RecordedRun) -> Parting:
    """Return where two runs part.

    Each link of the chain holds all rounds before it. So the first round that differs is found by
    bisection, whatever the number of rounds.

    Raises:
        RunError: the records of a run have no hashes.
    """
    records = _records(one), _records(other)
    common = sorted(records[0].keys() & records[1].keys())

    def parted(round: int) -> bool:
        return bool(records[0][round][CHAIN] != records[1][round][CHAIN])

    place = bisect_left(common, True, key=parted)
    if place == len(common):
        return Parting(None, len(common))
    # What is evaluated and what is counted in bytes may differ where the models do not.
    first = common[place]
    later = (number for number in common[place:] if _models_differ(records, number))
    until = next(later, common[-1])
    clients = _clients(one, first, until), _clients(other, first, until)
    for number in common[place : common.index(until) + 1]:
        here = [found.get(number, {}) for found in clients]
        found = _in_round(number, len(common), *here)
        if found is not None:
            return found
    if _models_differ(records, until):
        updates = sum(len(one["update_sha256"]) for one in clients[0].get(until, {}).values())
        text = f"the models after it differ, and its {updates} updates do not"
        return Parting(until, len(common), what="fold", text=text)
    keys = _other_keys(records[0][first], records[1][first])
    text = f"the records differ in {', '.join(keys)}; all models and updates are the same bits"
    return Parting(first, len(common), what="records", text=text)


def _records(run: RecordedRun) -> dict[int, dict[str, Any]]:
    records = run.round_records()
    for number, record in records.items():
        if not record.get(CHAIN):
            raise RunError(
                f"{run.folder.path}: the record of round {number} has no hashes to compare; "
                "an earlier version of fedmx wrote it"
            )
    if not records:
        raise RunError(f"{run.folder.path}: no round is recorded; give another run")
    return records


def _models_differ(records: Sequence[Mapping[int, Mapping[str, Any]]], round: int) -> bool:
    one, other = (kept[round]["model_sha256"] for kept in records)
    return bool(one != other)


def _clients(run: RecordedRun, first: int, last: int) -> dict[int, dict[int, dict[str, Any]]]:
    """Return the records of clients, by round, then by client in the order of the plan."""
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for record in run.folder.clients():
        if first <= record["round"] <= last:
            found.setdefault(record["round"], {}).setdefault(record["client"], record)
    return found


def _in_round(
    round: int,
    rounds: int,
    one: Mapping[int, Mapping[str, Any]],
    other: Mapping[int, Mapping[str, Any]],
) -> Parting | None:
    """Return how two versions of a round part by their clients; None: they do not."""
    if list(one) != list(other):
        text = f"its clients are {_listed(one)} against {_listed(other)}"
        return Parting(round, rounds, what="clients", text=text)
    differing = [
        client
        for client in one
        if any(one[client][key] != other[client][key] for key in ("update_sha256", "status"))
    ]
    if not differing:
        return None
    client = differing[0]
    mine, theirs = one[client], other[client]
    number = len(differing)
    if mine["samples"] != theirs["samples"]:
        text = f"it has {mine['samples']} samples against {theirs['samples']}"
        return Parting(round, rounds, client, "samples", text, number)
    if mine["status"] != theirs["status"]:
        text = f"it was {_fate(mine)} against {_fate(theirs)}"
        return Parting(round, rounds, client, "fate", text, number)
    return Parting(round, rounds, client, "update", "its updates differ", number)


def _fate(record: Mapping[str, Any]) -> str:
    return f"{record['status']} ({record['reason']})" if record["reason"] else record["status"]


def _listed(clients: Mapping[int, Any]) -> str:
    return ", ".join(map(str, clients)) or "nobody"


def _other_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [
        key
        for key in dict.fromkeys((*one, *other))
        if key not in (*TIMES, CHAIN) and one.get(key) != other.get(key)
    ]
