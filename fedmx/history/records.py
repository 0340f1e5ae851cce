"""The records of a run, checked: none is missing, damaged, without hashes, or off the chain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedmx.journal.chain import CHAIN, START, link_of, updates_of
from fedmx.run import RunError, RunFolder

ClientRecords = Mapping[int, Sequence[Mapping[str, Any]]]
"""The records of clients by round."""


@dataclass(frozen=True)
class CheckedRecords:
    """The records of a run's rounds and their clients; each error is one line.

    Attributes:
        folder: the run folder.
        name: what errors call it; empty: its path.
    """

    folder: RunFolder
    name: str = ""

    @cached_property
    def rounds(self) -> dict[int, dict[str, Any]]:
        """The record of each round, by its number.

        Raises:
            RunError: they are not the records of rounds in their order.
        """
        found: dict[int, dict[str, Any]] = {}
        last = 0
        for record in self.folder.rounds():
            number = record.get("round")
            if not isinstance(number, int) or number <= last:
                raise self.error(
                    "the records in rounds.jsonl are not in the order of their rounds; "
                    "restore the file"
                )
            found[number], last = record, number
        return found

    @property
    def last(self) -> int:
        """The last recorded round; 0: there is none."""
        return max(self.rounds, default=0)

    def round(self, number: int) -> dict[str, Any]:
        """Return the record of a round.

        Raises:
            RunError: it is missing.
        """
        if number not in self.rounds:
            damage = "; ".join(self.folder.damage) or "it is missing"
            raise self.error(
                f"there is no sound record of round {number} ({damage}); restore the file, or give "
                "another round"
            )
        return self.rounds[number]

    def hashed(self, number: int) -> dict[str, Any]:
        """Return the record of a round, which has hashes and names the participants.

        Raises:
            RunError: it is missing, or does not have them.
        """
        record = self.round(number)
        match record:
            case {"model_sha256": str(), "participants": [*participants]}:
                numbers = all(isinstance(one, int) for one in participants)
                if numbers and isinstance(record.get(CHAIN), str):
                    return record
        raise self.error(
            f"the record of round {number} has no hashes to compare, or does not name the "
            "participants; restore the file"
        )

    def clients(self, first: int = 1, last: int | None = None) -> ClientRecords:
        """Return the records of the clients of rounds.

        Raises:
            RunError: one is not that of a client.
        """
        found: dict[int, list[dict[str, Any]]] = {}
        for record in self.folder.clients():
            match record:
                case {"round": int(round), "client": int(), "update_blake3": [*hashes]}:
                    if all(isinstance(one, str) for one in hashes):
                        if first <= round and (last is None or round <= last):
                            found.setdefault(round, []).append(record)
                        continue
            raise self.error(
                "a record in clients.jsonl does not have a round, a client and the hashes of its "
                "update; restore the file"
            )
        return found

    def check_participants(
        self, number: int, clients: ClientRecords, among: Collection[int] | None = None
    ) -> None:
        """Check that the records of a round's participants are there.

        Args:
            number: of the round.
            clients: the records of clients by round.
            among: the clients to look at, if the round has records of any; None: all.

        Raises:
            RunError: the record of one is missing.
        """
        damage, kept = self.folder.damage, clients.get(number, ())
        known = {one["client"] for one in kept if one["update_blake3"] or not damage}
        lost = [
            str(one)
            for one in self.rounds.get(number, {}).get("participants", ())
            if one not in known and (among is None or one in among or not kept)
        ]
        if lost:
            why = "the run ended while they were written, or they were removed"
            raise self.error(
                f"the records of round {number} are not whole, since there is no sound record of "
                f"clients {', '.join(lost)} ({'; '.join(damage) or why}); resume the run if it is "
                "not done, restore the file, or give another round"
            )

    def link_before(self, number: int) -> str:
        """Return the recorded link of the chain before a round."""
        return self.rounds.get(number - 1, {}).get(CHAIN) or START

    def link(self, number: int, clients: ClientRecords) -> str:
        """Return the link of the chain that the records of a round make.

        Raises:
            RunError: they hold what no run writes.
        """
        updates = updates_of(clients.get(number, ())).get(number, {})
        try:
            return link_of(self.link_before(number), self.rounds[number], updates)
        except (ValueError, RecursionError):  # such as half of a surrogate pair, or lists in lists
            raise self.error(f"the records of round {number} hold what no run writes") from None

    def check_chain(self, last: int) -> None:
        """Check that no record up to a round is damaged, and that they fit the chain.

        Raises:
            RunError: one is damaged or missing, or does not fit.
        """
        _, clients = self.rounds, self.clients(last=last)
        if self.folder.damage:
            raise self.error(f"its records are damaged: {'; '.join(self.folder.damage)}")
        for number in range(1, last + 1):
            if self.hashed(number)[CHAIN] != self.link(number, clients):
                raise self.error(
                    f"the records of round {number} do not fit the chain: the run ended while they "
                    "were written, or they were changed; resume the run if it is not done, or give "
                    "an earlier round"
                )

    def error(self, text: str) -> RunError:
        """Return the error about these records."""
        return RunError(f"{self.name or self.folder.path}: {text}")
