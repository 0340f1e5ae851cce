"""On a terminal a command says what it loads before it loads it, and leaves nothing of that."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fedmx.command_line import environment, fedmx

# `mxnet` and `numpy` are stand-ins that say when they are imported; the command ends with them.
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
sys.argv = ["fedmx", *{words!r}]
import fedmx.cli
fedmx.cli.main()
"""
FILE = """\
rounds: 1
clients: 2
compute: {model: lenet5, data: digits, normalise: {scale: 16}}
"""


def seen_on_a_terminal(words: list[str], folder: Path, **more: str) -> str:
    """All that a command writes to a terminal, which is its stdout and stderr."""
    (folder / "small.yaml").write_text(FILE)
    for name in ("mxnet", "numpy"):
        (folder / f"{name}.py").write_text(
            f"import sys\nsys.stderr.write('<{name} begins>')\nraise SystemExit(3)\n"
        )
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(folder=str(folder), words=words)],
        cwd=folder,
        env=environment(**{"TERM": "xterm", **more}),
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # the terminal's other end is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    process.wait(60)
    return seen.decode()


@pytest.mark.parametrize(
    "words",
    ["run small.yaml", "server small.yaml", "client 127.0.0.1:1 --id 0", "data show small.yaml"],
)
def test_a_command_says_that_it_loads_a_package_before_it_does(words: str, tmp_path: Path) -> None:
    seen = seen_on_a_terminal(words.split(), tmp_path)
    loading, begins, rest = seen.partition("<numpy begins>")
    assert begins, seen
    assert loading.replace("\r\n", "\n") == "\r\033[Kloading numpy ..."
    assert rest.startswith("\r\033[K"), "the line is erased"


def test_json_has_no_such_line(tmp_path: Path) -> None:
    words = ["run", "small.yaml", "--log-format", "json"]
    assert "loading" not in seen_on_a_terminal(words, tmp_path)


def test_a_terminal_that_cannot_erase_has_no_such_line(tmp_path: Path) -> None:
    assert "loading" not in seen_on_a_terminal(["run", "small.yaml"], tmp_path, TERM="dumb")


def test_other_outputs_have_no_such_line(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(FILE)
    result = fedmx("run", "small.yaml", cwd=tmp_path)
    assert result.code == 0
    assert "loading" not in result.err
