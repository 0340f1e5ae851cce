"""The rounds of a run as TensorBoard event files, without TensorFlow."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sized
from pathlib import Path
from types import TracebackType
from typing import Any

from fedmx.quantities import QUANTITIES
from fedmx.run.durable import PRIVATE, PRIVATE_FOLDER, RunError, cannot_write


class EventLog:
    """One TensorBoard event file; the step of a value is its round.

    Writing is synchronous, in the caller's thread: a full disk raises an error here, not in a
    background thread.

    Args:
        folder: where to write the file.
        after_round: the round from which the run resumes, 0 for a new run. TensorBoard then drops
            later rounds of earlier files.

    Raises:
        RunError: the file cannot be made.
    """

    def __init__(self, folder: Path, after_round: int = 0):
        # Not at the top: reading a run folder does not need tensorboard.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event = event_pb2.Event
        self._summary = summary_pb2.Summary
        try:
            folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            self.path = _next_file(folder)
            self._file = self.path.open("xb")  # closed by close()
            os.fchmod(self._file.fileno(), PRIVATE)
        except OSError as error:
            raise RunError(cannot_write(folder, error, "events")) from None
        self._writer = RecordWriter(self._file)
        self._start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
        self.begin_after(after_round)

    def begin_after(self, round: int) -> None:
        """Continue after a round; TensorBoard drops the later ones.

        Raises:
            RunError: the file cannot be written.
        """
        self._write(self._event(wall_time=time.time(), step=round + 1, session_log=self._start))

    def add_round(self, record: Mapping[str, Any], of_hooks: Mapping[str, float] = {}) -> None:
        """Add the numbers of a round's record; a list counts as its length, and null is left out.

        A metric of the user has its key as the tag.

        Args:
            record: of the round.
            of_hooks: the numbers that hooks gave for it; each has the tag hooks/NAME.

        Raises:
            RunError: the file cannot be written.
        """
        values = [
            self._summary.Value(tag=tag, simple_value=number)
            for tag, number in (
                *((one.tag, _number(record.get(one.key))) for one in QUANTITIES if one.tag),
                *((key, value) for key, value in record.items() if _is_own_metric(key, value)),
                *((f"hooks/{name}", float(value)) for name, value in of_hooks.items()),
            )
            if number is not None
        ]
        self._write(
            self._event(
                wall_time=time.time(), step=record["round"], summary=self._summary(value=values)
            )
        )

    def close(self) -> None:
        """Close the file; all records are already in it."""
        with contextlib.suppress(OSError):  # add_round has reported it
            self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, event: Any) -> None:
        try:
            self._writer.write(event.SerializeToString())
            self._writer.flush()
        except OSError as error:
            raise RunError(cannot_write(self.path, error, "events")) from None


def _is_own_metric(key: str, value: object) -> bool:
    return isinstance(value, float) and not any(one.key == key for one in QUANTITIES)


def _number(value: object) -> float | None:
    if isinstance(value, Sized) and not isinstance(value, str | bytes):
        return float(len(value))
    with contextlib.suppress(TypeError, ValueError):
        return None if value is None else float(value)  # type: ignore[arg-type]
    return None


def _next_file(folder: Path) -> Path:
    """Return a file name that sorts after the existing ones, even if the clock was set back."""
    taken = sorted(path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*"))
    stamp = max([f"{int(time.time()):010d}", *taken])
    number = len(taken) + 1
    return folder / f"events.out.tfevents.{stamp}.{number:06d}.fedmx"
