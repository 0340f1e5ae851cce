"""The fork server outlives processes that end while they ask it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from tests.fedmx.fork_server import ADDRESS, ForkedProcess, fork_server, write_program


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
