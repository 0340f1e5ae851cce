"""A file of records, one JSON object in each line; it grows by whole lines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmx.run.durable import write_durably
from fedmx.run.errors import RunError


class JsonLines:
    """The records of one file; an unfinished last line, which a killed process left, is ignored."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records, all or none of them.

        NaN and infinities become null, and numpy values become plain ones.

        Raises:
            RunError: JSON cannot hold a value, or the file cannot be written.
        """
        lines = "".join(self._line(record) for record in records).encode()
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                end = _whole_lines(descriptor)
                os.ftruncate(descriptor, end)
                try:
                    _write_all(descriptor, lines, end)
                except OSError:
                    os.ftruncate(descriptor, end)
                    raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot write ({error.strerror}); free disk space"
            ) from None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the records, in order.

        Raises:
            RunError: a line is damaged, or the file cannot be read.
        """
        try:
            with open(self.path, "rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.endswith(b"\n"):
                        return
                    try:
                        record = json.loads(line)
                    except ValueError:
                        record = None
                    if not isinstance(record, dict):
                        raise RunError(f"{self.path}:{number}: the line is damaged; delete it")
                    yield record
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"{self.path}: cannot read ({error.strerror})") from None

    def keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Keep the wanted records and remove all others; the file changes as a whole or not at all.

        Raises:
            RunError: the file cannot be read or written.
        """
        if not self.path.exists():
            return

        def write(temporary: Path) -> None:
            with open(temporary, "w", encoding="ascii") as file:
                file.writelines(self._line(record) for record in self.read() if wanted(record))

        try:
            write_durably(self.path, write)
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot write ({error.strerror}); free disk space"
            ) from None

    def sync(self) -> None:
        """Write the appended records to the disk, so that they survive a power cut."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())

    def _line(self, record: Mapping[str, Any]) -> str:
        return json.dumps(plain(record, self.path.name), allow_nan=False) + "\n"


def plain(value: Any, where: str) -> Any:
    """Return a value as strict JSON can hold it.

    Args:
        value: the value.
        where: the field's name, for the message.

    Raises:
        RunError: JSON cannot hold it.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}: {key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, where) for item in value]
    raise RunError(f"{where}: {type(value).__name__} cannot be written as JSON")


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
