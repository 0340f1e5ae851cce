"""A command works where outputs are closed or warnings are errors, and says where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmx import RunFolder
from fedmx.version import __version__
from tests.fedmx.command_line import PATIENCE_S, copied, environment
from tests.fedmx.fork_server import ForkedProcess

FILE = """\
name: small
rounds: 2
clients: 2
compute: {model: logistic, data: digits, normalise: {scale: 16}}
"""


def in_a_shell(
    words: str, redirection: str, folder: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process whose outputs a shell redirects."""
    (folder / "small.yaml").write_text(FILE)
    return subprocess.run(
        ["bash", "-c", f'"$0" -m fedmx {words} {redirection}', sys.executable],
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


NO_ROOM = "fedmx: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("words", "redirection", "code", "out", "err"),
    [
        ("--version", "2>&-", 0, f"fedmx {__version__}\n", ""),
        ("--version", ">&-", 0, "", ""),
        ("--version", "<&- >&- 2>&-", 0, "", ""),
        ("list", ">/dev/full", 2, "", NO_ROOM),
        ("runs . --json", ">/dev/full", 2, "", NO_ROOM),
        ("run none.yaml", "2>&-", 2, "", ""),
    ],
)
def test_a_closed_output_changes_no_exit_code_and_a_full_one_is_one_line(
    words: str, redirection: str, code: int, out: str, err: str, tmp_path: Path
) -> None:
    done = in_a_shell(words, redirection, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


@pytest.mark.needs_mxnet
def test_a_run_is_done_where_outputs_are_closed(tmp_path: Path) -> None:
    assert in_a_shell("run small.yaml", ">&- 2>&-", tmp_path).returncode == 0
    (model,) = tmp_path.glob("runs/small-*/model.safetensors")
    assert model.stat().st_size > 0


@pytest.mark.needs_mxnet
@pytest.mark.parametrize("full", [True, False], ids=["a full disk", "a reader that has left"])
def test_a_log_that_cannot_be_written_ends_no_run(full: bool, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(FILE)
    reads, unread = os.pipe()
    os.close(reads)
    with open(os.devnull, "r+b") as nothing, open("/dev/full", "wb") as full_disk:
        log = full_disk.fileno() if full else unread
        files = [nothing.fileno(), nothing.fileno() if full else log, log]
        words = ["run", "small.yaml"]
        run = ForkedProcess("fedmx.cli.start:main", words, tmp_path, environment(), files)
        os.close(unread)
        code = run.wait(PATIENCE_S)
        assert code == 0 or not full, "without a reader its result cannot be written either"
    (folder,) = tmp_path.glob("runs/small-*")
    assert RunFolder.open(folder).status == "done"


@pytest.mark.needs_mxnet
@pytest.mark.parametrize("bits", ["native", "portable"])
def test_a_run_is_done_where_warnings_are_errors(bits: str, tmp_path: Path) -> None:
    words = f"run small.yaml --set compute.bits={bits}"
    done = in_a_shell(words, "", tmp_path, PYTHONWARNINGS="error")
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0


@pytest.mark.needs_mxnet
def test_a_portable_run_is_exported_from_any_process(tmp_path: Path) -> None:
    """The command takes the instructions of the run, as the other commands on a run do."""
    for words in (
        "run small.yaml --set compute.bits=portable",
        "export runs/small-* --to safetensors --out x.safetensors",
    ):
        done = in_a_shell(words, "", tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.safetensors").exists()


def test_python_without_docstrings_is_refused_in_one_line(tmp_path: Path) -> None:
    done = in_a_shell("run small.yaml", "", tmp_path, PYTHONOPTIMIZE="2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "without docstrings" in done.stderr
    assert "PYTHONOPTIMIZE" in done.stderr


# What the check needs is loaded before this Python says that it is another version.
OTHER_PYTHON = """
import sys
from fedmx.cli.start import main
from layers.compute.engines.mxnet import loading
sys.version_info = {version}
main(["--version"])
"""


@pytest.mark.parametrize("version", [(3, 9, 7), (3, 14, 0)])
def test_a_python_that_is_not_known_to_work_is_refused_in_one_line(
    version: tuple[int, ...], tmp_path: Path
) -> None:
    said = copied(OTHER_PYTHON.format(version=version), cwd=tmp_path)
    assert f"Python {'.'.join(map(str, version))} " in said.error_text
    assert "3.10 to 3.13" in said.error_text
