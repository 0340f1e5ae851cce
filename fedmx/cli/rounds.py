"""The rounds of a run on the terminal: the loop, its progress lines, and the result."""

from __future__ import annotations

import bdb
import contextlib
import json
import math
import os
import pdb
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from types import FrameType, TracebackType
from typing import Any, Literal

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedmx.cli.options import options
from fedmx.cli.output import LogLines, error_text, is_json, is_live, say, show_text, timed
from fedmx.cli.process import Interrupted
from fedmx.errors import FedmxError
from fedmx.experiment import Experiment
from fedmx.quantities import Quantity, metrics_in
from fedmx.report.formats import SHOW, duration, finite, mebibytes, plain
from fedmx.report.summary import curve_of, document_of, read_settings
from fedmx.run import RunFolder
from fedmx.run.records import plain as plain_record
from fedmx.server.recorder import recorded
from fedmx.server.round import Round
from fedmx.server.server import Server
from fedmx.shell_line import shell_line
from layers.compute.engines.evaluation import LOSS
from layers.compute.errors import ComputeError
from layers.logic import BrokenModel
from layers.logic.errors import ClientFailed, ImpossibleRound, LogicError, PartFailed


@dataclass(frozen=True)
class Result:
    """The end of a run.

    Attributes:
        folder: the run folder.
        values: the loss and each metric of the last model, by key; empty: it was not evaluated.
        chosen_on_test: whether results on the test split ended the run.
    """

    folder: RunFolder
    values: Mapping[str, Any]
    chosen_on_test: bool = False


def run_loop(
    server: Server,
    folder: RunFolder | Callable[[], RunFolder],
    show: Callable[[Result], None] | None = None,
) -> None:
    """Run, record and show all rounds of a server, and print the result.

    Args:
        server: the server, simulated or deployed.
        folder: the run folder, or a function that creates it when the first round starts.
        show: prints the result; None: print it as lines.

    Raises:
        Interrupted: a signal ended the run.
        FedmxError: the run cannot continue; the text says how to resume it.
    """
    experiment = server.experiment
    assert experiment is not None
    opened: list[RunFolder] = []
    progress = RoundProgress(
        server.last_round, server.state.round, may_end_early=experiment.stop.is_set
    )

    def open_folder() -> RunFolder:
        opened.append(folder() if callable(folder) else folder)
        progress.say("run_folder", f"run folder: {opened[0].path}", path=str(opened[0].path))
        return opened[0]

    rounds = recorded(server, open_folder if callable(folder) else open_folder())
    last: Round | None = None
    try:
        with progress:
            for last in rounds:
                progress.show(last, opened[0])
    except KeyboardInterrupt as interruption:
        if not opened:
            raise
        with contextlib.suppress(KeyboardInterrupt):  # between two rounds nothing else handles it
            rounds.throw(interruption)
        if opened[0].status != "done":
            raise _interrupted(server, experiment, opened[0]) from None
        raise
    except Exception as error:
        if opened and _is_debugger_left(error):
            raise _interrupted(server, experiment, opened[0]) from None
        text = error_text(error)
        if text is None or not opened or server.recorder is None:
            raise  # a bug, or the run did not start
        again = _happens_again(error)
        new = callable(folder) and not server.state.round and not server.network.untrusted
        if again and new and opened[0].path.is_dir():
            shutil.rmtree(opened[0].path)
            raise FedmxError(f"{text}; the run folder, which has no round, is removed") from error
        hint = _hint(experiment, opened[0])
        if again == "settings":
            hint = _fork_hint(server, opened[0])
        elif again and hint:
            hint = f"; correct the code, then{hint.removeprefix(';')}"
        raise FedmxError(f"{text}{hint}") from error
    (show or _print_result)(_result(server, opened[0], last))


def print_document(result: Result) -> None:
    """Print the result of a run as a JSON document."""
    folder = result.folder
    files = {"model": str(folder.model_path), "report": str(folder.report_path)}
    settings = read_settings(folder.experiment_yaml)
    found = {**document_of(folder, settings, curve_of(folder)), **files}
    typer.echo(json.dumps(plain_record(found, "the result")))


def _happens_again(error: Exception) -> Literal["", "code", "settings"]:
    """Return what must change before a resumed run can get past an error; empty: nothing."""
    if isinstance(error, ComputeError | ImpossibleRound):
        return "settings"
    if isinstance(error, BrokenModel):
        return "settings" if error.report.round == 1 else ""
    if not isinstance(error, ClientFailed | PartFailed):
        return ""
    if isinstance(error.__cause__, OSError | MemoryError):
        return ""
    return "settings" if isinstance(error.__cause__, ComputeError | LogicError) else "code"


def _fork_hint(server: Server, folder: RunFolder) -> str:
    """Return how to go on with other settings from the last round; empty without a round."""
    if not server.state.round:
        return ""
    words = ("fork", folder.path, "--round", str(server.state.round), "--set", "KEY=VALUE")
    return f"; a resumed run fails alike, so change a setting: {shell_line('fedmx', *words)}"


def _hint(experiment: Experiment, folder: RunFolder) -> str:
    """Return how to continue a run that ended early, or how to make the report of a finished one.

    The command allows the code that the run named. If the folder was removed or moved, there is no
    command: that must not hide the reason why the run ended.
    """
    from fedmx.components.user_code import named_code

    if not folder.path.is_dir():
        return ""
    try:
        if folder.status == "done":
            words = ["report"]
        else:
            words = ["resume", *options(named_code(experiment.components)).split()]
    except (FedmxError, OSError):
        return ""
    return f"; continue with: {shell_line('fedmx', words[0], folder.path, *words[1:])}"


def _interrupted(server: Server, experiment: Experiment, folder: RunFolder) -> Interrupted:
    return Interrupted(f"interrupted {_last_round_text(server)}{_hint(experiment, folder)}")


def _is_debugger_left(error: BaseException | None) -> bool:
    """Return whether the user left a debugger of their own by ``q``."""
    while error is not None and not isinstance(error, bdb.BdbQuit):
        error = error.__cause__
    return error is not None


def _last_round_text(server: Server) -> str:
    return f"after round {server.state.round}" if server.state.round else "before round 1 was done"


def _result(server: Server, folder: RunFolder, last: Round | None) -> Result:
    measured = None if last is None else last.evaluation.values
    on_test = server.test is None and server.logic.evaluation is None
    early = server.stop.reads_results and server.state.round < server.last_round
    return Result(folder, measured or server.evaluate(), chosen_on_test=early and on_test)


def _print_result(result: Result) -> None:
    folder = result.folder
    main, records = metrics_in(folder.facts)[0], folder.rounds()

    def said(values: Mapping[str, Any]) -> str:
        text = f"{main.words} {SHOW[main.unit](values.get(main.key))}"
        loss = values.get(LOSS)
        return text if loss is None else f"{text}, loss {loss:.4f}"

    text, more = said(result.values), []
    if records and records[-1].get("test"):
        more.append(f"test:   {said(records[-1]['test'])}")
    if result.chosen_on_test:
        more.append("the end was chosen on test data; compute.evaluate.validation holds others out")
    if records and records[-1].get("virtual"):
        text += f", after {duration(records[-1].get('clock_elapsed_s'))} of virtual time"
    show_text(
        (
            f"{folder.reason}: {text}",
            *more,
            f"model:  {folder.model_path}",
            *([f"report: {folder.report_path}"] if folder.report_path.exists() else ()),
        )
    )


BAR_COLUMNS = 20
RECENT_ROUNDS = 20  # for the estimate of the time that is left
HISTORY_ROUNDS = 10  # every tenth round stays on a terminal,
HISTORY_LINES = 20  # or every twentieth and so on, so that about this many lines stay
SHRINKING = (
    *("best", "metric", "virtual"),  # shorter words
    *("down", "up", "flight", "virtual", "best", "best", "epsilon"),  # then columns disappear,
    *("loss", "begun", "staleness", "rate"),
    *("round", "left"),  # until only round and metric are left
)
"""On a narrow terminal, columns take their next shorter form in this order."""


class RoundProgress:
    """Shows the rounds of a run on stderr, and its log above them.

    Args:
        last: the number of the last round.
        done: the number of rounds before a resume.
        may_end_early: whether a target can end the run before its last round.
    """

    def __init__(self, last: int, done: int = 0, *, may_end_early: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._line = ProgressLine(last, done, may_end_early=may_end_early)
        self._stays_every = HISTORY_ROUNDS * math.ceil(last / HISTORY_ROUNDS / HISTORY_LINES)
        self._logs = LogLines(self._console)
        self._live: Live | None = None
        self._breakpoint = sys.breakpointhook
        if is_live(self._console):
            self._live = Live(
                self._line, console=self._console, refresh_per_second=4, transient=True
            )

    def __enter__(self) -> RoundProgress:
        self._logs.__enter__()
        sys.breakpointhook = self._debug
        if self._live is not None:
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
                self._console.print(timed(f"round {round.round}: {uncounted}"), soft_wrap=True)
            if round.round % self._stays_every == 0:
                width = self._console.width - len(timed(""))
                self._console.print(timed(self._line.history(width)), soft_wrap=True)
            return
        self._console.print(timed(text), soft_wrap=True)

    def say(self, event: str, text: str, **fields: Any) -> None:
        """Write an event to stderr, above the progress line; see `output.say`."""
        if self._live is None:
            say(event, text, **fields)
        else:
            self._console.print(timed(text), markup=False, soft_wrap=True)

    def _debug(self, *arguments: Any, **named: Any) -> Any:
        """Start a debugger; later rounds are plain lines."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        sys.breakpointhook = self._breakpoint
        chosen = os.environ.get("PYTHONBREAKPOINT", "") not in ("", "pdb.set_trace")
        if self._breakpoint is sys.__breakpointhook__ and not chosen:
            return _Debugger().set_trace(
                sys._getframe(1)
            )  # the frame of breakpoint(), not this one
        return self._breakpoint(*arguments, **named)


class _Debugger(pdb.Pdb):
    """A debugger whose ``q`` ends the command cleanly, as Ctrl-C does."""

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise KeyboardInterrupt from None


class ProgressLine:
    """One line about the progress of a run that fits the terminal's width."""

    def __init__(self, last: int, done: int = 0, *, may_end_early: bool = False) -> None:
        self._last = last
        self._may_end_early = may_end_early
        self._round = done
        self._metric: Quantity | None = None
        self._value: float | None = None
        self._loss: float | None = None
        self._best: tuple[float, int] | None = None  # value and round
        self._up_bytes: int | None = None
        self._down_bytes = 0
        self._virtual_s: float | None = None
        self._ends_s: deque[float] = deque(maxlen=RECENT_ROUNDS + 1)
        self._updates: deque[int] = deque(maxlen=RECENT_ROUNDS)
        self._staleness: tuple[int, ...] | None = None  # None: rounds wait
        self._in_flight: int | None = None
        self._epsilon: float | None = None

    def add_round(self, round: Round, folder: RunFolder) -> None:
        """Add a round; at the first call, the bytes before a resume are read from `folder`."""
        if self._metric is None:
            self._metric = metrics_in(folder.facts)[0]
        if self._up_bytes is None:
            records = folder.rounds()
            self._up_bytes = sum(record["up_bytes"] for record in records)
            self._down_bytes = sum(record["down_bytes"] for record in records)
            for record in records:
                self._keep_best(self._metric, record)
        else:
            self._up_bytes += round.up_bytes
            self._down_bytes += round.down_bytes
        self._round = round.round
        self._virtual_s = round.clock_elapsed_s if round.virtual else None
        values = round.evaluation.values
        if values:
            self._value, self._loss = values.get(self._metric.key), round.loss
            self._keep_best(self._metric, {"round": round.round, **values})
        self._staleness, self._in_flight = round.staleness, round.report.in_flight
        self._epsilon = round.epsilon
        self._updates.append(round.updates)
        now_s = time.monotonic()
        if not self._ends_s:
            self._ends_s.append(now_s - round.seconds)
        self._ends_s.append(now_s)

    def _keep_best(self, metric: Quantity, record: Mapping[str, Any]) -> None:
        value = finite(record.get(metric.key))
        if value is not None and (self._best is None or metric.is_better(value, self._best[0])):
            self._best = value, record["round"]

    def parts(self) -> list[str]:
        """Return the parts of a plain line."""
        columns = self.columns()
        return [forms[0] for name, forms in columns.items() if name != "best"]

    def columns(self) -> dict[str, tuple[str, ...]]:
        """Return the columns, each with its forms from the longest to the shortest."""
        at = f"{self._round}/{self._last}"
        unit = "round" if self._staleness is None else "version"
        columns: dict[str, tuple[str, ...]] = {"round": (f"{unit} {at}", at)}
        if self._up_bytes is None:
            return {**columns, "begun": (f"round {self._round + 1} has begun", "")}
        metric = self._metric
        if metric is not None and self._value is not None:
            known = SHOW[metric.unit](self._value)
            columns["metric"] = (
                f"{metric.words} {known}",
                f"{metric.short or metric.words} {known}",
            )
        if self._loss is not None:
            columns["loss"] = (f"loss {self._loss:.4f}", "")
        if metric is not None and self._best is not None:
            value, round = self._best
            known = f"best {SHOW[metric.unit](value)}"
            if value == self._value:
                columns["best"] = ("best so far", "")
            else:
                columns["best"] = (f"{known} in {unit} {round}", known, "")
        if self._epsilon is not None:
            columns["epsilon"] = (f"epsilon {self._epsilon:.2f}", "")
        if self._virtual_s is not None:
            known = duration(self._virtual_s)
            columns["virtual"] = (f"virtual time {known}", f"virtual {known}", "")
        if self._staleness:
            columns["staleness"] = (f"staleness {mean(self._staleness):.1f}", "")
        if self._in_flight is not None:
            columns["flight"] = (f"{self._in_flight} in flight", "")
            columns["rate"] = (f"{plain(self._updates_per_s())} updates/s", "")
        columns["up"] = (f"up {mebibytes(self._up_bytes)}", "")
        columns["down"] = (f"down {mebibytes(self._down_bytes)}", "")
        left_s = self._left_s()
        if left_s is not None:
            columns["left"] = (time_left(left_s, at_most=self._may_end_early), "")
        return columns

    def history(self, width: int) -> str:
        """Return the line that stays, of at most `width` characters."""
        return fitted({**self.columns(), "left": ("",)}, width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        columns = self.columns()
        if self._round == self._last:
            columns["left"] = ("writing the report", "")
        cells: list[Any] = [Text(fitted(columns, width), no_wrap=True, overflow="crop")]
        if len(joined(columns)) + 2 + BAR_COLUMNS <= width:
            cells.insert(0, ProgressBar(self._last, self._round, width=BAR_COLUMNS))
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(*cells)
        yield line

    def _updates_per_s(self) -> float:
        """Return the updates that arrived in a second of this machine, in the last rounds."""
        return sum(self._updates) / max(self._ends_s[-1] - self._ends_s[0], 1e-9)

    def _left_s(self) -> float | None:
        rounds = len(self._ends_s) - 1
        if rounds < 1 or self._round >= self._last:
            return None
        each_s = (self._ends_s[-1] - self._ends_s[0]) / rounds
        since_s = time.monotonic() - self._ends_s[-1]
        return max(0.0, (self._last - self._round) * each_s - since_s)


def time_left(seconds: float, *, at_most: bool) -> str:
    """Return the text of the remaining time; `at_most`: a target can end the run early."""
    known = f"{seconds:.0f} s" if seconds < 60 else duration(seconds)
    return f"at most {known} left" if at_most else f"{known} left"


def joined(columns: Mapping[str, Sequence[str]]) -> str:
    """Return a line with the longest form of each column."""
    return "  ".join(forms[0] for forms in columns.values() if forms[0])


def fitted(columns: Mapping[str, Sequence[str]], width: int) -> str:
    """Return a line of at most `width` characters; the least important columns shrink first.

    Args:
        columns: the forms of each column, from the longest to the shortest.
        width: in characters; the line is longer if the shortest forms do not fit.
    """
    left = dict(columns)
    for name in SHRINKING:
        if len(joined(left)) <= width:
            break
        if len(left.get(name, ())) > 1:
            left[name] = left[name][1:]
    return joined(left)


def _uncounted_text(round: Round) -> str:
    """Return the number of selected clients without an accepted update, by status; may be empty."""
    ended = [one for one in round.report.clients if one.status != "in-flight"]
    selected = len(ended)
    reasons = [
        f"{number} {status}"
        for status in ("rejected", "declined", "lost")
        if (number := len(round.report.of(status)))
    ]
    if not reasons:
        return ""
    return f"{selected - len(round.participants)} of {selected} did not count: {', '.join(reasons)}"
