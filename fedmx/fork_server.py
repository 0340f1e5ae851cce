"""A fork server imports fedmx once, and each new process is a copy of it.

To import MXNet and fedmx takes longer than a short run. A copy begins after the imports, and from
there does what a new process does. A fork is safe only in a process with one thread and without
CUDA; if the imports leave another, each process starts anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import math
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fedmx.errors import FedmxError
from fedmx.log import Log

log = Log("fedmx.fork_server")

COMMAND = ("fedmx.cli.main", "fedmx.components.build")
"""The modules of fedmx that every command needs which trains."""

MAX_REQUEST_BYTES = 100_000
MOST_FILES = 16
POLL_S = 0.01
_MOVED = 512  # descriptors from here on are used by no library
_PR_SET_PDEATHSIG = 1


class Asker:
    """One end of a socket to a fork server."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._asked = 0

    def ask(self, request: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
        """Send a request with descriptors, and return the reply."""
        self._asked = asked = self._asked + 1
        socket.send_fds(self._socket, [json.dumps({**request, "number": asked}).encode()], files)
        while True:  # Ctrl-C may have interrupted the wait for an earlier reply
            answer = self._socket.recv(MAX_REQUEST_BYTES)
            if not answer:
                raise FedmxError("the process from which others are forked was killed")
            number, reply = json.loads(answer)
            if number == asked:
                return reply


class ForkServer(Asker):
    """A fork server for processes of one environment; they end with it, or with this process.

    Where this process has that environment and may fork, it imports the modules itself, and the
    fork server is a copy of it: both share their memory. Otherwise Python starts anew.

    Args:
        modules: what it imports first.
        environment: of its processes.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        self._told = False
        self._wait: Callable[[], int]
        with theirs:
            if dict(environment) != dict(os.environ) or not self._fork(theirs, modules):
                words = [str(theirs.fileno()), *modules]
                self._wait = subprocess.Popen(
                    [sys.executable, "-m", "fedmx.fork_server", *words],
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                ).wait

    def _fork(self, theirs: socket.socket, modules: Sequence[str]) -> bool:
        """Fork the fork server from this process; return whether that was possible."""
        if why_unsafe() is not None:
            return False
        import_all(modules)
        if why_unsafe() is not None:
            return False
        pid = os.fork()
        if pid == 0:
            self._socket.close()
            for number in (signal.SIGTERM, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            serve(theirs)
            os._exit(0)
        self._wait = lambda: os.waitpid(pid, 0)[1]
        return True

    def popen(
        self, module: str, words: Sequence[str], files: Sequence[int], passed: Sequence[int] = ()
    ) -> ForkedProcess:
        """Start ``python -m MODULE WORD...``; the first call waits for the imports.

        Args:
            module: with its package.
            words: its arguments.
            files: the descriptors of its standard input, output and error.
            passed: other descriptors, which have the same numbers there.
        """
        request = {"words": ["-m", module, *words], "passed": list(passed)}
        pid, reason = self.ask(request, [*files, *passed])
        if reason is not None and not self._told:
            self._told = True
            log.info("started_anew", "each process imports anew, because {reason}", reason=reason)
        return ForkedProcess(self, pid)

    def close(self) -> None:
        """End its processes by SIGTERM, and wait for them."""
        self._socket.close()
        self._wait()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ForkedProcess:
    """A process that a fork server started, as `subprocess.Popen` has it.

    Args:
        server: who started it.
        pid: its process id.
    """

    def __init__(self, server: Asker, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code once the process has ended."""
        if self.returncode is None:
            self.returncode = self._server.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout_s: float = math.inf) -> int:
        """Return the exit code; wait for it."""
        ends = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process was seen to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the process was seen to have ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, unless the process was seen to have ended."""
        self.send_signal(signal.SIGTERM)


# --- in the fork server ----------------------------------------------------------------------


class Children:
    """The processes that this process started, and the exit codes of those that ended."""

    def __init__(self) -> None:
        self.living: set[int] = set()
        self._ended: dict[int, int] = {}

    def add(self, pid: int) -> None:
        """Add a process."""
        self.living.add(pid)
        self._ended.pop(pid, None)  # the system uses numbers again

    def poll(self, pid: int) -> int | None:
        """Return the exit code of a process once it has ended."""
        if pid in self.living:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self.living.discard(pid)
                self._ended[pid] = os.waitstatus_to_exitcode(status)
        return self._ended.get(pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to all that have not ended."""
        for pid in self.living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def received(connection: socket.socket) -> tuple[dict[str, Any] | None, Sequence[int]]:
    """Return a request and its descriptors; None: nobody asks any more."""
    message, files = b"", list[int]()
    with contextlib.suppress(ConnectionResetError):  # killed before it read the reply
        message, files, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, MOST_FILES)
    return (json.loads(message) if message else None), files


def reply(connection: socket.socket, request: Mapping[str, Any], found: Any) -> None:
    """Answer a request; whoever asked may have been killed."""
    with contextlib.suppress(BrokenPipeError):
        connection.send(json.dumps([request.get("number"), found]).encode())


def import_all(modules: Sequence[str]) -> None:
    """Import modules; what is not installed is left out, since processes say what they miss."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def serve(connection: socket.socket) -> None:
    """Start processes as they are asked for, until nobody can ask; then end them.

    Args:
        connection: to the one who asks.
    """
    gc.freeze()
    unsafe, children = why_unsafe(), Children()
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all
    while True:
        request, files = received(connection)
        if request is None:
            break
        if "poll" in request:
            reply(connection, request, children.poll(request["poll"]))
            continue
        pid = _spawned(request, files) if unsafe else os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, interrupt)
            become(request["words"], files, run_module, request["passed"])
        children.add(pid)
        for file in files:
            os.close(file)
        reply(connection, request, [pid, unsafe])
    children.send_signal(signal.SIGTERM)
    for pid in list(children.living):
        os.waitpid(pid, 0)


def why_unsafe() -> str | None:
    """Return why this process must not fork; None: it may."""
    threads = Path("/proc/self/task")
    if len(list(threads.iterdir())) > 1 or threading.active_count() > 1:
        return "an import started a thread"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "an import started CUDA"
    return None


def _spawned(request: Mapping[str, Any], files: Sequence[int]) -> int:
    """Start Python anew, and return its process id."""
    numbers = [0, 1, 2, *request["passed"]]
    actions = [(os.POSIX_SPAWN_DUP2, *each) for each in zip(files, numbers, strict=True)]
    command = [sys.executable, *request["words"]]
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)


def run_module(name: str) -> None:
    """Run a module as ``python -m`` does."""
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def become(
    words: Sequence[str],
    files: Sequence[int],
    run: Callable[[str], None],
    passed: Sequence[int] = (),
) -> NoReturn:
    """Go on as ``python WORD...``, in a process that was just forked.

    Args:
        words: an option, what it runs, and the arguments.
        files: the descriptors of the standard input, output and error, and those for `passed`.
        run: runs what the option names.
        passed: the numbers that the other descriptors are to have.
    """
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # First out of the way of the numbers that they are to have.
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD, _MOVED) for file in files]
        os.closerange(3, _MOVED)
        for number, file in zip([0, 1, 2, *passed], moved, strict=True):
            os.dup2(file, number)
            os.close(file)
        _open_streams()
        # The words with which Python would start it, should it begin again.
        sys.orig_argv = [sys.executable, *words]
        how, what, *arguments = words
        sys.argv = [how, *arguments]
        run(what)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001, as Python does it before it ends
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _open_streams() -> None:
    """Open the standard streams anew: those of before know of /dev/null that it can seek."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    for number, name in ((1, "stdout"), (2, "stderr")):
        before, raw = getattr(sys, name), io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        import_all(sys.argv[2:])
        serve(asking)
    os._exit(0)
