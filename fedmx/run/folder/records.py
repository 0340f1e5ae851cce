"""The records of a run: of its rounds, of their clients, and the course of a deployed run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmx.display import frame_of
from fedmx.run.json_lines import JsonLines

if TYPE_CHECKING:
    from pandas import DataFrame

log = logging.getLogger("fedmx.run")


class RunRecords:
    """The part of a run folder that keeps records, and tells which of them are damaged.

    Args:
        path: the folder.
        checked: whether each record must have its checksum.
    """

    def __init__(self, path: Path, checked: bool):
        self.path = path
        self._rounds = JsonLines(path / "rounds.jsonl", checked)
        self._clients = JsonLines(path / "clients.jsonl", checked)
        self._course = JsonLines(path / "course.jsonl")
        self._damaged_files: dict[str, None] = {}
        self._told: set[str] = set()

    @property
    def _records(self) -> tuple[JsonLines, ...]:
        return self._rounds, self._clients, self._course

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Append a round to rounds.jsonl, whole or not at all; NaN and infinities become null.

        Raises:
            RunError: it cannot be written.
        """
        self._rounds.append([record])

    def append_clients(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append the records of a round's clients to clients.jsonl, all or none of them.

        Raises:
            RunError: they cannot be written.
        """
        self._clients.append(records)

    def append_course(self, record: Mapping[str, Any]) -> None:
        """Append the course of a round to course.jsonl, whole or not at all.

        Raises:
            RunError: it cannot be written.
        """
        self._course.append([record])

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records of all rounds, in order; damaged ones are left out, see `damage`."""
        records = list(self._rounds.read())
        self._note()
        return records

    def lost_rounds(self, last: int) -> list[int]:
        """Return the rounds up to `last` whose records a run that goes on would silently miss.

        A damaged line between sound ones is none of them: it is told whenever it is read, and the
        chain goes on over it. After the last sound record, the chain has no link to go on from.
        """
        lost: list[int] = []
        known, damaged = 0, False
        for record in self._rounds.slots():
            if record is None:
                damaged = True
                continue
            if record["round"] > last:
                break
            if not damaged:
                lost.extend(range(known + 1, record["round"]))
            known, damaged = record["round"], False
        self._note()
        return [*lost, *range(known + 1, last + 1)]

    def lost_clients(self, last: int) -> list[int]:
        """Return the rounds up to `last` of which records of clients that counted are gone.

        What a damaged line may have held is not gone: it is told whenever the line is read.
        """
        missing = {
            record["round"]: set(record["participants"])
            for record in self._rounds.read()
            if record["round"] <= last
        }
        damaged: set[int] = set()
        known, is_damaged = 1, False
        for record in self._clients.slots():
            if record is None:
                is_damaged = True
                continue
            if is_damaged:
                damaged.update(range(known, record["round"] + 1))
            known, is_damaged = record["round"], False
            missing.get(known, set()).discard(record["client"])
        if is_damaged:
            damaged.update(range(known, last + 1))
        self._note()
        return [round for round, clients in missing.items() if clients and round not in damaged]

    def clients(self, round: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records of clients, in order: of one round, or of all; see also `rounds`."""
        for record in self._clients.read():
            if round is None or record.get("round") == round:
                yield record
        self._note()

    def course(self) -> list[dict[str, Any]]:
        """Return the courses of a deployed run's rounds, in order; see also `rounds`."""
        records = list(self._course.read())
        self._note()
        return records

    def to_pandas(self) -> DataFrame:
        """Return a frame with a row for each recorded round; damaged records are left out.

        Raises:
            FedmxError: pandas is not installed.
        """
        return frame_of(self.rounds())

    @property
    def damage(self) -> tuple[str, ...]:
        """One line for each damaged file, or line of one, that was met until now."""
        lines = (
            f"{records.path}:{number}: the line is damaged; it is left out"
            for records in self._records
            for number in records.damaged
        )
        return (*self._damaged_files, *lines)

    def _note(self, *damaged: str) -> None:
        """Keep what is damaged, and log each damage once."""
        self._damaged_files.update(dict.fromkeys(damaged))
        for text in self.damage:
            if text not in self._told:
                self._told.add(text)
                log.warning("%s", text)

    def _remove_records(self, later_than: int) -> None:
        """Remove the records of later rounds.

        Raises:
            RunError: they cannot be written.
        """
        for records in self._records:
            records.keep(
                lambda record: (
                    isinstance(record.get("round"), int) and record["round"] <= later_than
                )
            )
