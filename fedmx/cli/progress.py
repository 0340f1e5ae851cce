"""What a run shows while it goes on: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedmx.report.quantities import duration, mebibytes, percent
from fedmx.round import Round


class RoundProgress:
    """Shows rounds on stderr, and what is logged above them.

    Args:
        last: number of the last round.
    """

    def __init__(self, last: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._last = last
        self._shown = 0
        self._up = self._down = 0
        self._seconds = 0.0
        self._accuracy = self._loss = ""
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._handler = _Lines(self._console)

    def __enter__(self) -> RoundProgress:
        root = logging.getLogger("fedmx")
        root.setLevel(logging.INFO)
        root.addHandler(self._handler)
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("round {task.completed}/{task.total}"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[line]}"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=self._console,
            )
            self._task = self._bar.add_task("rounds", total=self._last, line="starting")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        logging.getLogger("fedmx").removeHandler(self._handler)

    def show(self, round: Round) -> None:
        """Show one round."""
        self._up += round.up_bytes
        self._down += round.down_bytes
        self._seconds += round.seconds
        self._shown += 1
        if round.accuracy is not None:
            self._accuracy = f"accuracy {percent(round.accuracy)}"
        if round.loss is not None:
            self._loss = f"loss {round.loss:.4f}"
        parts = [self._accuracy, self._loss, f"up {mebibytes(self._up)}"]
        parts.append(f"down {mebibytes(self._down)}")
        dropped = len(round.report.clients) - len(round.participants)
        if dropped:
            parts.append(f"{dropped} of {len(round.report.clients)} clients did not count")
        line = "  ".join(part for part in parts if part)
        if self._bar is not None:
            self._bar.update(self._task, completed=round.round, line=line)
            return
        left_s = (self._last - round.round) * self._seconds / self._shown
        text = f"round {round.round}/{self._last}  {line}  {duration(left_s)} left"
        self._console.print(text, soft_wrap=True)


class LogLines:
    """Shows what is logged on stderr, for a command without rounds of its own."""

    def __init__(self) -> None:
        self._handler = _Lines(Console(stderr=True, highlight=False))

    def __enter__(self) -> LogLines:
        root = logging.getLogger("fedmx")
        root.setLevel(logging.INFO)
        root.addHandler(self._handler)
        return self

    def __exit__(self, *exc_info: object) -> None:
        logging.getLogger("fedmx").removeHandler(self._handler)


class _Lines(logging.Handler):
    """Prints log records as plain lines that do not disturb the progress line."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"{record.levelname.lower()}: {text}"
        self._console.print(text, markup=False, soft_wrap=True)
