"""Rounds of a recorded run, run again and compared with their records by hash."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedmx.course.chain import CHAIN, START, chained, link_of, updates_of
from fedmx.replay.recorded_run import RecordedRun
from fedmx.replay.rerun import rerun
from fedmx.run import RunError
from fedmx.server.round import Round
from fedmx.server.stop import Stop


@dataclass(frozen=True)
class ReplayedRound:
    """A round that was run again, beside its record.

    Attributes:
        round: number of the round.
        model_sha256: the SHA-256 (hex) of the model after it, here.
        recorded_model_sha256: the same, as it was recorded.
        chain: the chain's link, made here of the recorded one before it.
        recorded_chain: the recorded link.
        record_holds: whether that is the link of the record; otherwise the record was changed.
        updates: how many updates counted here.
        differing: the clients whose updates have other hashes, or counted in one of the two only.
    """

    round: int
    model_sha256: str
    recorded_model_sha256: str
    chain: str
    recorded_chain: str
    record_holds: bool
    updates: int
    differing: tuple[int, ...]

    @property
    def same(self) -> bool:
        """Whether the round is the recorded one: its record, its updates and its model."""
        return self.record_holds and self.chain == self.recorded_chain and not self.differing

    def record(self) -> dict[str, Any]:
        """Return the round as plain values."""
        return {**asdict(self), "differing": list(self.differing), "same": self.same}


def replayed_rounds(run: RecordedRun, round: int | None = None) -> Iterator[ReplayedRound]:
    """Run a recorded run again, and yield its rounds beside their records.

    A run that stepped back yields some numbers twice; the record is that of the last time.

    Args:
        run: the run.
        round: the only round to run again, from the nearest checkpoint before it; None: all rounds,
            from the beginning, or from where a fork goes its own way.

    Raises:
        RunError: there is no such round, its records have no hashes, or it cannot be run here.
    """
    records = run.round_records()
    last = max(records, default=0) if round is None else round
    if last not in records:
        raise RunError(f"{run.folder.path}: round {last} is not recorded; give another one")
    first = round or run.folder.forked_after + 1
    _check_whole(run, records, max(first - 1, 1), last)
    for number, record in records.items():
        if first <= number <= last and not record.get(CHAIN):
            raise RunError(
                f"{run.folder.path}: the record of round {number} has no hashes to compare with; "
                "an earlier version of fedmx wrote it"
            )
    clients = list(run.folder.clients(round))
    updates = updates_of(clients)
    recorded = {(one.get("round"), one.get("client")) for one in clients}
    for number in range(first, last + 1):
        counted = records[number]["participants"]
        _check_clients(run, number, counted, updates.get(number, {}), recorded)
    with rerun(run, first) as server:
        server.stop = Stop()  # what ended the run may be the real time
        steps = len(server.steps_back.steps)
        steps += run.steps_back(server.state.round + 2, last)
        for one in server:
            yield _compared(one, records, updates.get(one.round, {}))
            if one.round >= last and len(server.steps_back.steps) >= steps:
                return


def check_part(run: RecordedRun, round: int, client: int) -> None:
    """Check that the record of a client's part in a round is not lost.

    Raises:
        RunError: it is, or those of all clients are.
    """
    counted = run.round_records().get(round, {}).get("participants", ())
    clients = list(run.folder.clients(round))
    recorded = {(one.get("round"), one.get("client")) for one in clients}
    wanted = [one for one in counted if one == client or not clients]
    _check_clients(run, round, wanted, updates_of(clients).get(round, {}), recorded)


def _check_whole(
    run: RecordedRun, records: Mapping[int, Mapping[str, Any]], first: int, last: int
) -> None:
    """Check that the records of rounds are there, and that of before them, for its link.

    Raises:
        RunError: one is missing.
    """
    for number in range(first, last + 1):
        if number not in records:
            damage = "; ".join(run.folder.damage) or "it is missing"
            raise RunError(
                f"{run.folder.path}: there is no sound record of round {number} to compare with "
                f"({damage}); restore the file, or replay other rounds one by one with --round"
            )


def _check_clients(
    run: RecordedRun,
    number: int,
    wanted: Collection[int],
    updates: Mapping[int, tuple[str, ...]],
    recorded: Collection[tuple[Any, Any]],
) -> None:
    """Check that no record of a round's participants is lost.

    Args:
        run: the run.
        number: of the round.
        wanted: the participants whose records are needed.
        updates: the recorded hashes of its counted updates, by client.
        recorded: round and client of each record of a client.

    Raises:
        RunError: one is.
    """
    damage = run.folder.damage
    if damage and any(client not in updates for client in wanted):
        raise RunError(
            f"{run.folder.path}: there is no sound record of the clients of round "
            f"{number} to compare with ({'; '.join(damage)}); restore the file, or "
            "replay other rounds one by one with --round"
        )
    lost = [str(one) for one in wanted if (number, one) not in recorded]
    if lost:
        raise RunError(
            f"{run.folder.path}: the records of round {number} are not whole, since there are none "
            f"of clients {', '.join(lost)}: the run ended while they were written, or they were "
            "removed; resume the run if it is not done, or replay other rounds one by one with "
            "--round"
        )


def _compared(
    round: Round, records: Mapping[int, Mapping[str, Any]], updates: Mapping[int, tuple[str, ...]]
) -> ReplayedRound:
    record = records[round.round]
    found = {client: tuple(sent) for client, sent in round.update_sha256.items()}
    before = records.get(round.round - 1, {}).get(CHAIN, START)
    sent = [one for hashes in found.values() for one in hashes]
    return ReplayedRound(
        round=round.round,
        model_sha256=round.model_sha256,
        recorded_model_sha256=record["model_sha256"],
        chain=chained(before, round.record(), sent, round.model_sha256),
        recorded_chain=record[CHAIN],
        record_holds=link_of(before, record, updates) == record[CHAIN],
        updates=len(found),
        differing=tuple(
            client
            for client in sorted({*found, *updates})
            if found.get(client) != updates.get(client)
        ),
    )
