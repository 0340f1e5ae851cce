"""A file with one JSON object a line that only grows, and never keeps half a line."""

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
    """The records of one file. A line that a killed process left unfinished does not count."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Add the records, all or none. NaN and infinities become null, numpy values plain ones.

        Raises RunError for a value that JSON does not know, or when the disk refuses.
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
            raise RunError(f"{self.path}: cannot write ({error.strerror}); make room") from None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the records in order. Raises RunError with the line number of a damaged one."""
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
        """Drop every other record, and an unfinished last line; atomic."""
        if not self.path.exists():
            return

        def write(temporary: Path) -> None:
            with open(temporary, "w", encoding="ascii") as file:
                file.writelines(self._line(record) for record in self.read() if wanted(record))

        try:
            write_durably(self.path, write)
        except OSError as error:
            raise RunError(f"{self.path}: cannot write ({error.strerror}); make room") from None

    def sync(self) -> None:
        """Make what was appended survive a power cut."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())

    def _line(self, record: Mapping[str, Any]) -> str:
        return json.dumps(plain(record, self.path.name), allow_nan=False) + "\n"


def plain(value: Any, where: str) -> Any:
    """Return ``value`` as strict JSON knows it. Raises RunError that names the field, if none."""
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
    """The length in bytes of the file up to its last line break."""
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
