"""The records of a run: JSON lines with checksums for its rounds, their clients and its journal."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedmx.display import frame_of
from fedmx.log import Log
from fedmx.run.durable import (
    PRIVATE,
    RunError,
    cannot_write,
    sealed,
    sync_folder,
    unsealed,
    write_durably,
)

if TYPE_CHECKING:
    from pandas import DataFrame


class JsonLines:
    """The records of one file; an unfinished last line of a killed process is ignored.

    Args:
        path: the file.

    Attributes:
        damaged: the numbers (from 1) of the damaged lines found so far.
    """

    def __init__(self, path: Path):
        self.path = path
        self.damaged: dict[int, None] = {}
        self._named = False  # whether the folder's entry of the file is synced

    def append(self, records: Iterable[Mapping[str, Any]], *, durable: bool = False) -> None:
        """Append records atomically.

        NaN and infinities become null, and numpy values become plain ones.

        Args:
            records: the records.
            durable: return once they are on the disk.

        Raises:
            RunError: JSON cannot hold a value, or the file cannot be written.
        """
        lines = "".join(self._line(record) for record in records).encode()
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            try:
                end = _whole_lines(descriptor)
                os.ftruncate(descriptor, end)
                try:
                    _write_all(descriptor, lines, end)
                    if durable:
                        os.fsync(descriptor)
                        self._sync_name()
                except OSError:
                    os.ftruncate(descriptor, end)
                    raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RunError(cannot_write(self.path, error)) from None

    def read(self, key: str = "", value: Any = None) -> Iterator[dict[str, Any]]:
        """Yield the intact records, in order, without their checksums.

        Args:
            key: yield only the records that have this key with this value, and do not check the
                lines without it; empty: all records.
            value: of the key.

        Raises:
            RunError: the file cannot be read.
        """
        part = json.dumps({key: value})[1:-1].encode() if key else b""
        records = (record for record, _ in self._lines(part) if record is not None)
        return (one for one in records if not key or one.get(key) == value)

    def slots(self) -> Iterator[dict[str, Any] | None]:
        """Yield the intact records as `read` does, and None for each damaged line.

        Raises:
            RunError: the file cannot be read.
        """
        return (record for record, _ in self._lines())

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Keep the wanted records and remove the others, atomically.

        A damaged line stays, unless a record before it is removed.

        Raises:
            RunError: the file cannot be read or written.
        """
        if not self.path.exists():
            return

        def write(temporary: Path) -> None:
            removed = False
            with open(temporary, "wb") as file:
                for record, line in self._lines():
                    if record is None:
                        file.write(b"" if removed else line.rstrip(b"\n") + b"\n")
                    elif wanted(record):
                        file.write(self._line(record).encode())
                    else:
                        removed = True

        try:
            write_durably(self.path, write, private=True)
        except OSError as error:
            raise RunError(cannot_write(self.path, error)) from None
        self.damaged = {}

    def sync(self) -> None:
        """Sync the appended records to the disk, so that they survive a power cut."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
            self._sync_name()

    def _sync_name(self) -> None:
        if not self._named:
            sync_folder(self.path.parent)
            self._named = True

    def _lines(self, part: bytes = b"") -> Iterator[tuple[dict[str, Any] | None, bytes]]:
        """Yield each line that has a part, and its record if it is intact."""
        try:
            with open(self.path, "rb") as file:
                for number, line in enumerate(file, start=1):
                    if part not in line:
                        continue
                    if not line.endswith(b"\n") and not _is_whole(line):
                        return
                    record = self._record(line) if line.endswith(b"\n") else None
                    if record is None:
                        self.damaged[number] = None
                    yield record, line
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"{self.path}: cannot read ({error.strerror})") from None

    def _record(self, line: bytes) -> dict[str, Any] | None:
        """Return the record in a line, None if it is damaged."""
        try:
            # As text: json would guess the encoding of bytes (UTF-16, UTF-32).
            found = unsealed(json.loads(line.decode()))
        except (ValueError, RecursionError):
            return None
        if found is None or not found.checked:
            return None
        return found.values

    def _line(self, record: Mapping[str, Any]) -> str:
        values = sealed(plain(record, self.path.name), self.path.name)
        return json.dumps(values, allow_nan=False) + "\n"


_PLAIN = frozenset({str, int, bool, type(None)})  # most values are


def plain(value: Any, where: str) -> Any:
    """Return a value as strict JSON.

    Args:
        value: the value.
        where: the field's name, for the message.

    Raises:
        RunError: JSON cannot hold it.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            str(key): item if type(item) in _PLAIN else plain(item, f"{where}: {key}")
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, where) for item in value]
    raise RunError(f"{where}: {type(value).__name__} cannot be written as JSON")


def _is_whole(line: bytes) -> bool:
    """Return whether a last line lost its line break: another byte stands in its place."""
    text = line.decode("ascii", errors="replace")
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    document = unsealed(found)
    return end < len(text) and document is not None and document.checked


def _whole_lines(descriptor: int) -> int:
    """Return the length in bytes of the file up to its last line break."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - 4096)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


log = Log("fedmx.run")


MOST_TOLD = 10  # damaged lines of a file, before the count of the others


class RunRecords:
    """The part of a run folder that keeps records and reports damaged ones.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path):
        self.path = path
        self._rounds = JsonLines(path / "rounds.jsonl")
        self._clients = JsonLines(path / "clients.jsonl")
        self._evaluations = JsonLines(path / "evaluations.jsonl")
        self._journal = JsonLines(path / "journal.jsonl")
        self._damaged_files: dict[str, None] = {}
        self._told: set[str] = set()

    @property
    def _records(self) -> tuple[JsonLines, ...]:
        return self._rounds, self._clients, self._evaluations, self._journal

    def append_round(self, record: Mapping[str, Any]) -> None:
        """Append a round to rounds.jsonl, atomically; NaN and infinities become null.

        Raises:
            RunError: it cannot be written.
        """
        self._rounds.append([record])

    def append_clients(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append the records of a round's clients to clients.jsonl, atomically.

        Raises:
            RunError: they cannot be written.
        """
        self._clients.append(records)

    def append_evaluations(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append a round's results on each client's samples to evaluations.jsonl, atomically.

        Raises:
            RunError: they cannot be written.
        """
        self._evaluations.append(records)

    def append_journal(self, record: Mapping[str, Any]) -> None:
        """Append the journal of a round to journal.jsonl, atomically.

        Raises:
            RunError: it cannot be written.
        """
        self._journal.append([record])

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records of all rounds, in order; damaged ones are left out, see `damage`."""
        records = list(self._rounds.read())
        self._note()
        return records

    def lost_rounds(self, last: int) -> list[int]:
        """Return the rounds up to `last` whose records a resumed run would silently miss.

        A damaged line between intact ones does not count: each read reports it, and the chain
        continues over it. After the last intact record, the chain has no link to continue from.
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
        """Return the rounds up to `last` with missing records of accepted clients.

        A record that a damaged line may have held does not count: each read reports that line.
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
        """Yield the records of clients, in order, of one round or of all; see also `rounds`."""
        yield from self._clients.read() if round is None else self._clients.read("round", round)
        self._note()

    def evaluations(self) -> Iterator[dict[str, Any]]:
        """Yield the results on each client's own samples, in order; see also `rounds`."""
        yield from self._evaluations.read()
        self._note()

    def journal(self) -> list[dict[str, Any]]:
        """Return the journals of the rounds, in order; see also `rounds`."""
        records = list(self._journal.read())
        self._note()
        return records

    def to_pandas(self, what: Literal["rounds", "clients", "evaluations"] = "rounds") -> DataFrame:
        """Return a frame with a row for each record; damaged records are left out.

        Args:
            what: the rounds; each client's part in each round; or the results of models on each
                client's own samples.

        Raises:
            FedmxError: pandas is not installed.
        """
        records: Mapping[str, Callable[[], Iterable[dict[str, Any]]]] = {
            "rounds": self.rounds,
            "clients": self.clients,
            "evaluations": self.evaluations,
        }
        return frame_of(records[what]())

    @property
    def damage(self) -> tuple[str, ...]:
        """One line for each damaged file or line found so far; after ten of a file, a count."""
        lines: list[str] = []
        for records in self._records:
            lines += [
                f"{records.path}:{number}: the line is damaged; it is left out"
                for number in islice(records.damaged, MOST_TOLD)
            ]
            more = len(records.damaged) - MOST_TOLD
            if more > 0:
                lines.append(f"{records.path}: {more:,} further lines are damaged, and left out")
        return (*self._damaged_files, *lines)

    def _note(self, *damaged: str) -> None:
        """Keep reports of damage, and log each one once."""
        self._damaged_files.update(dict.fromkeys(damaged))
        for text in self.damage:
            if text not in self._told:
                self._told.add(text)
                log.warning("note", "{text}", text=text)

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
