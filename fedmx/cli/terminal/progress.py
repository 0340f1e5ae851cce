"""The progress of a run: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import pdb
import sys
import time
from collections import deque
from types import TracebackType
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedmx.cli.terminal.json_lines import is_json, say
from fedmx.cli.terminal.log_lines import LogLines
from fedmx.report.records.quantities import duration, mebibytes, percent
from fedmx.run import RunFolder
from fedmx.server.round import Round

BAR_COLUMNS = 20
RECENT_ROUNDS = 20  # for the estimate of the time that is left


class RoundProgress:
    """Shows the rounds of a run on stderr, and its log above them.

    Args:
        last: the number of the last round.
    """

    def __init__(self, last: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._line = ProgressLine(last)
        self._logs = LogLines(self._console)
        self._live: Live | None = None
        self._breakpoint = sys.breakpointhook
        if sys.stderr.isatty() and not is_json() and not self._console.is_dumb_terminal:
            self._live = Live(
                self._line, console=self._console, refresh_per_second=4, transient=True
            )

    def __enter__(self) -> RoundProgress:
        self._logs.__enter__()
        if self._live is not None:
            sys.breakpointhook = self._debug
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.breakpointhook = self._breakpoint
        if self._live is not None:
            self._live.stop()
        self._logs.__exit__(kind, error, traceback)

    def show(self, round: Round, folder: RunFolder) -> None:
        """Show a round of the run that `folder` records."""
        self._line.add_round(round, folder)
        uncounted = _uncounted_text(round)
        parts = [*self._line.parts(), uncounted]
        text = "  ".join(part for part in parts if part)
        if is_json():
            say("round", text, **round.record())
            return
        if self._live is not None:
            self._live.refresh()
            if uncounted:
                self._console.print(f"round {round.round}: {uncounted}", soft_wrap=True)
            return
        self._console.print(text, soft_wrap=True)

    def _debug(self, *arguments: Any, **named: Any) -> Any:
        """Start a debugger; from now on the rounds are plain lines."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        sys.breakpointhook = self._breakpoint
        if self._breakpoint is sys.__breakpointhook__ and not os.environ.get("PYTHONBREAKPOINT"):
            return pdb.Pdb().set_trace(sys._getframe(1))  # the frame of breakpoint(), not this one
        return self._breakpoint(*arguments, **named)


class ProgressLine:
    """One line about the progress of a run, as wide as the terminal allows."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._round = 0
        self._accuracy: float | None = None
        self._loss: float | None = None
        self._up_bytes: int | None = None
        self._down_bytes = 0
        self._virtual_s: float | None = None
        self._ends_s: deque[float] = deque(maxlen=RECENT_ROUNDS + 1)

    def add_round(self, round: Round, folder: RunFolder) -> None:
        """Add a round; at the first call, the bytes before a resume are read from `folder`."""
        if self._up_bytes is None:
            records = folder.rounds()
            self._up_bytes = sum(record["up_bytes"] for record in records)
            self._down_bytes = sum(record["down_bytes"] for record in records)
        else:
            self._up_bytes += round.up_bytes
            self._down_bytes += round.down_bytes
        self._round = round.round
        self._virtual_s = round.clock_elapsed_s if round.virtual else None
        if round.accuracy is not None:
            self._accuracy, self._loss = round.accuracy, round.loss
        now_s = time.monotonic()
        if not self._ends_s:
            self._ends_s.append(now_s - round.seconds)
        self._ends_s.append(now_s)

    def parts(self, shortened: int = 0) -> list[str]:
        """Return the parts of the line.

        Args:
            shortened: 0 for full words, 1 for shorter words, 2 for the fewest.
        """
        parts = [f"{'' if shortened > 1 else 'round '}{self._round}/{self._last}"]
        if self._up_bytes is None:
            return [*parts, "the first round has begun"]
        if self._accuracy is not None:
            parts.append(f"{'acc' if shortened else 'accuracy'} {percent(self._accuracy)}")
        if self._loss is not None:
            parts.append(f"{'' if shortened > 1 else 'loss '}{self._loss:.4f}")
        if self._virtual_s is not None:
            parts.append(
                f"{'virtual' if shortened else 'virtual time'} {duration(self._virtual_s)}"
            )
        parts.append(f"up {mebibytes(self._up_bytes)}")
        parts.append(f"down {mebibytes(self._down_bytes)}")
        left_s = self._left_s()
        if left_s is not None:
            parts.append(f"{left_s:.0f} s left" if left_s < 60 else f"{duration(left_s)} left")
        return parts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        texts = ["  ".join(self.parts(shortened)) for shortened in range(3)]
        text = next((one for one in texts if len(one) <= width), texts[-1])
        cells: list[Any] = [Text(text, no_wrap=True, overflow="crop")]
        if len(texts[0]) + 2 + BAR_COLUMNS <= width:
            cells.insert(0, ProgressBar(self._last, self._round, width=BAR_COLUMNS))
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(*cells)
        yield line

    def _left_s(self) -> float | None:
        rounds = len(self._ends_s) - 1
        if rounds < 1 or self._round >= self._last:
            return None
        each_s = (self._ends_s[-1] - self._ends_s[0]) / rounds
        since_s = time.monotonic() - self._ends_s[-1]
        return max(0.0, (self._last - self._round) * each_s - since_s)


def _uncounted_text(round: Round) -> str:
    """Return how many selected clients' updates did not count, by status; empty if all did."""
    selected = len(round.report.clients)
    reasons = [
        f"{number} {status}"
        for status in ("rejected", "declined", "lost")
        if (number := len(round.report.of(status)))
    ]
    if not reasons:
        return ""
    return f"{selected - len(round.participants)} of {selected} did not count: {', '.join(reasons)}"
