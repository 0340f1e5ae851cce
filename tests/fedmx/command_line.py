"""Commands as a user types them: real processes, from start to end or under way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fedmx.fork_server import ForkedProcess

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
READ_AT_START = ("PYTHON", "MXNET_", "OMP_", "DNNL_")


@dataclass(frozen=True)
class CommandResult:
    """The outputs and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def error_text(self) -> str:
        """The one line of an error that the user can correct."""
        assert self.code == 2, self
        assert self.out == "", self
        assert "Traceback" not in self.err, self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("fedmx: ")
        return lines[0].removeprefix("fedmx: ")


def environment(**more: str) -> dict[str, str]:
    """The environment of commands: this one's code, no data of the user's, 80 columns."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FEDMX_", "PYTHON")) and name not in ("NO_COLOR", "FORCE_COLOR")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80", **more}


def fedmx(
    *words: str | Path,
    cwd: Path,
    code: str = "",
    typed: str | None = None,
    anew: bool = False,
    page: bool = False,
    **more: str,
) -> CommandResult:
    """Run a command to its end; ``code`` runs in its place, with the words as ``sys.argv``.

    Args:
        *words: what follows ``fedmx``.
        cwd: where it runs.
        code: Python to run instead of the command.
        typed: what it reads from its standard input.
        anew: start Python for it, where the start itself counts; otherwise it is a copy of a
            process that has everything loaded. Variables that Python and the libraries read when
            they start do so, too.
        page: whether a run draws its page; a process that starts anew does.
        **more: environment variables.
    """
    if not (code or anew or any(name.startswith(READ_AT_START) for name in more)):
        return copied("fedmx.cli.start:main", *words, cwd=cwd, typed=typed or "", page=page, **more)
    stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if typed is None else {"input": typed}
    start = ["-c", code] if code else ["-m", "fedmx"]
    done = subprocess.run(
        [sys.executable, *start, *map(str, words)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **stdin,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def copied(
    function: str, *words: str | Path, cwd: Path, typed: str = "", page: bool = False, **more: str
) -> CommandResult:
    """Run a function, as ``module:name``, or a program; everything is loaded in its process."""
    with (
        tempfile.TemporaryFile("w+") as stdin,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        stdin.write(typed)
        stdin.seek(0)
        files = [file.fileno() for file in (stdin, out, err)]
        process = ForkedProcess(
            function, list(map(str, words)), cwd, environment(**more), files, page=page
        )
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return CommandResult(code, out.read(), err.read())


class Started(ForkedProcess):
    """A command under way, as `subprocess.Popen` has it; its outputs are pipes.

    Args:
        words: its words.
        folder: where it runs.
        environment: its variables.
        starts_anew: whether the processes that it starts are no copies, but its children.
        main: what runs, as `module:name` or as a program.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        starts_anew: bool = False,
        main: str = "fedmx.cli.start:main",
    ) -> None:
        (ours_out, out), (ours_err, err) = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing:
            files = [nothing.fileno(), out, err]
            super().__init__(main, words, folder, environment, files, starts_anew=starts_anew)
        os.close(out)
        os.close(err)
        self.stdout, self.stderr = os.fdopen(ours_out), os.fdopen(ours_err)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for its end, and return what it has written."""
        said = self.stdout.read(), self.stderr.read()
        self.wait(timeout)
        return said


@contextlib.contextmanager
def started(
    *words: str | Path, cwd: Path, anew: bool = False, starts_anew: bool = False, **more: str
) -> Iterator[Started | subprocess.Popen[str]]:
    """Start a command that listens to Ctrl-C, as from a terminal; it ends with the test.

    Args:
        *words: what follows ``fedmx``.
        cwd: where it runs.
        anew: start Python for it, where the start itself counts.
        starts_anew: whether the processes that it starts are no copies, but its children.
        **more: environment variables.
    """
    process = (
        subprocess.Popen(
            [sys.executable, "-m", "fedmx", *map(str, words)],
            cwd=cwd,
            env=environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        if anew
        else Started(list(map(str, words)), cwd, environment(**more), starts_anew)
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def ended(process: Started | subprocess.Popen[str]) -> CommandResult:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode is not None
    return CommandResult(process.returncode, out, err)


def wait_until(condition: Callable[[], object], process: Started | subprocess.Popen[str]) -> None:
    """Wait for a condition that the process brings about."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"it ended before: {process.communicate(timeout=PATIENCE_S)}")
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.01)


def lines_of(pattern: str, folder: Path) -> Sequence[str]:
    """The lines of the one file that fits a pattern, if there is one."""
    return [line for path in folder.glob(pattern) for line in path.read_text().splitlines()]
