"""The fork server outlives processes that end while they ask it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedmx.fork_server import ForkServer
from tests.fedmx.fork_server import ADDRESS, ForkedProcess, fork_server, write_program
from tests.fedmx.processes import ROOT, until


def _exit_code(folder: Path) -> int:
    with open(os.devnull, "r+b") as nothing:
        files = [nothing.fileno()] * 3
        return ForkedProcess("builtins:print", (), folder, {}, files).wait()


def test_a_process_that_ends_before_it_reads_the_reply_ends_nothing_else(tmp_path: Path) -> None:
    """A socket that is closed with unread data is reset, not ended."""
    write_program(tmp_path)
    server = os.environ.get(ADDRESS, fork_server(sys.executable).pid)
    for _ in range(20):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(f"\0fedmx-tests-{server}")
            asking.send(b'{"poll": 1}')
            asking.recv(1, socket.MSG_PEEK)
    assert _exit_code(tmp_path) == 0


def test_a_reply_that_ctrl_c_left_unread_is_not_taken_for_the_next(tmp_path: Path) -> None:
    server = fork_server(sys.executable)
    with open(os.devnull, "r+b") as nothing:
        process = ForkedProcess("builtins:exit", ("3",), tmp_path, {}, [nothing.fileno()] * 3)
    code = process.wait()
    server._socket.send(b'{"poll": %d, "number": -1}' % process.pid)
    process.returncode = None
    assert process.poll() == code
    assert _exit_code(tmp_path) == 0


THREAD = (
    "import threading, time; threading.Thread(target=time.sleep, args=[600], daemon=True).start()"
)


@pytest.mark.parametrize(("module", "forks"), [("", True), (THREAD, False)])
def test_a_process_with_threads_is_not_forked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, module: str, forks: bool
) -> None:
    """The program says whether the imports of the fork server are there, and exits with 7."""
    caplog.set_level("INFO")
    (tmp_path / "imported.py").write_text(module)
    (tmp_path / "program.py").write_text(
        "import sys; print('imported' in sys.modules, *sys.argv[1:], flush=True); sys.exit(7)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with (
        ForkServer(["imported", "no_such_module"], environment) as server,
        open(os.devnull, "rb") as nothing,
        (tmp_path / "out").open("wb") as out,
    ):
        files = nothing.fileno(), out.fileno(), out.fileno()
        codes = [server.popen("program", ["a", "b"], files).wait(60) for _ in range(2)]
    assert codes == [7, 7]
    assert (tmp_path / "out").read_text() == f"{forks} a b\n" * 2
    anew = [one for one in caplog.records if getattr(one, "event", "") == "started_anew"]
    assert len(anew) == (not forks)


def test_the_processes_of_a_fork_server_end_with_the_one_who_asked(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    )
    asks = (
        "import os, time; from fedmx.fork_server import ForkServer; "
        "server = ForkServer([], dict(os.environ)); server.popen('program', [], (0, 1, 2)); "
        "time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-c", asks], env=environment, stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        asking.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), lambda: f"{pid} still runs")
