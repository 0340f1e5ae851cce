"""A run on a terminal: a line that goes, and a debugger that gets the terminal for itself."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fedmx.cli.gated_run import place, rounds_of
from tests.fedmx.command_line import PATIENCE_S, environment, fedmx
from tests.fedmx.fork_server import ForkedProcess


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return place(tmp_path)


@contextlib.contextmanager
def on_a_terminal(folder: Path, *words: str) -> Iterator[tuple[ForkedProcess, int]]:
    """Start a run of one client on a terminal of its own, and give the other end of that."""
    main, terminal = pty.openpty()
    command = ["run", "small.yaml", "--own-modules", "--set", "clients=1", *words]
    process = ForkedProcess(
        "fedmx.cli.start:main", command, folder, environment(TERM="xterm"), [terminal] * 3
    )
    os.close(terminal)
    try:
        yield process, main
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        os.close(main)


def test_a_terminal_has_one_line_that_goes_and_a_debugger_gets_it_for_itself(folder: Path) -> None:
    (folder / "open").touch()
    (folder / "debug").touch()
    with on_a_terminal(folder) as (process, main):
        seen = _read(main, until=b"(Pdb) ")
        assert re.search(rb"2/4  acc", seen)
        os.write(main, b"p 6 * 7\n")
        assert b"42" in _read(main, until=b"(Pdb) ")
        (folder / "debug").unlink()
        os.write(main, b"c\n")
        after = _read(main)
    assert process.returncode == 0
    assert b"gate.py" in seen  # where breakpoint() is, not where it was handled
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1  # the cursor is back
    assert re.search(rb"^round 4/4  accuracy", after, re.MULTILINE)


@pytest.mark.needs_mxnet
def test_q_in_a_debugger_ends_a_run_as_ctrl_c_does(folder: Path) -> None:
    (folder / "debug").touch()
    with on_a_terminal(folder) as (process, main):
        _read(main, until=b"(Pdb) ")
        os.write(main, b"q\n")
        after = _read(main).decode().replace("\r", "")
    assert process.returncode == 130
    (run,) = (folder / "runs").iterdir()
    told = f"interrupted after round 2; continue with: fedmx resume runs/{run.name} --own-modules"
    assert after == f"q\nfedmx: {told}\n"
    assert rounds_of(run) == [1, 2]


@pytest.mark.parametrize("call", ["breakpoint()", "__import__('pdb').set_trace()"])
def test_a_debugger_whose_input_ends_ends_the_run_too(folder: Path, call: str) -> None:
    (folder / "debug").touch()
    gate = folder / "gate.py"
    gate.write_text(gate.read_text().replace("breakpoint()", call))
    result = fedmx("run", "small.yaml", "--own-modules", "--set", "clients=1", cwd=folder)
    assert result.code == 130
    assert "Traceback" not in result.err
    assert result.err.splitlines()[-1].startswith("fedmx: interrupted after round 2; continue")


@pytest.mark.needs_mxnet
def test_every_tenth_round_stays_on_a_terminal(folder: Path) -> None:
    (folder / "open").touch()
    with on_a_terminal(folder, "--set", "rounds=21") as (process, main):
        seen = _read(main).decode()
    assert process.returncode == 0
    assert re.findall(r"round (\d+)/21  acc[^\r\n]*best[^\r\n]*\r\n", seen) == ["10", "20"]
    assert not re.search(r"has begun *run folder", seen)  # that line is above the one that goes


def _read(descriptor: int, until: bytes = b"") -> bytes:
    """What a terminal shows, until some text or its end."""
    seen, ends = b"", time.monotonic() + PATIENCE_S
    while not (until and until in seen) and time.monotonic() < ends:
        if select.select([descriptor], [], [], 1.0)[0]:
            try:
                some = os.read(descriptor, 4096)
            except OSError:  # Linux's way to say that the other end is closed
                some = b""
            if not some:
                break
            seen += some
    return seen
