"""Processes that begin with MXNet and fedmx loaded: copies of one that loaded them once.

Loading takes two seconds of a core. What a copy does from there on is what a new process does, and
it can be killed as any other.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import importlib.util
import io
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from layers.compute.bits import PORTABLE_ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    "fedmx.cli.main",
    "fedmx.cli.rounds",
    "fedmx.deployment.join",
    "fedmx.components.build",
    "fedmx.history",
    "fedmx.report.page",
    "fedmx.server.recorder",
    "fedmx.simulation.executors.processes",
    "fedmx.sweeps.processes",
    "layers.compute.engines.mxnet.engine",  # where MXNet is installed
    "layers.compute.engines.mxnet.models",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "rich.progress",
    "sklearn.datasets",
    "sklearn.datasets.data",
    "tensorboard.summary",
)
MAX_REQUEST_BYTES = 100_000
MOST_FILES = 16
ADDRESS = "FEDMX_TESTS_FORK_SERVER"
POLL_S = 0.01


class ForkServer:
    """The process that others are copies of; it ends them when this process ends.

    Args:
        python: the interpreter that they run on.
    """

    def __init__(self, python: str) -> None:
        self._asked = 0
        if ADDRESS in os.environ:  # this process is a copy itself, and asks where it was made
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.connect(_address(os.environ[ADDRESS]))
            return
        environment = {name: v for name, v in os.environ.items() if not name.startswith("MXNET_")}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, "-W", "ignore", __file__, str(theirs.fileno())],
                cwd=ROOT,
                env={
                    **environment,
                    "PYTHONPATH": str(ROOT),
                    "PYTHONUNBUFFERED": "1",
                    "OMP_NUM_THREADS": "1",
                },
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self.pid = self._process.pid
        atexit.register(self.close)

    def ask(self, request: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
        self._asked = asked = self._asked + 1
        socket.send_fds(self._socket, [json.dumps({**request, "number": asked}).encode()], files)
        while True:  # Ctrl-C may have interrupted the wait for an earlier reply
            number, reply = json.loads(self._socket.recv(MAX_REQUEST_BYTES))
            if number == asked:
                return reply

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _address(pid: str) -> str:
    """Return where a fork server can be asked; the system forgets this name with its process."""
    return f"\0fedmx-tests-{pid}"


@functools.cache
def fork_server(python: str) -> ForkServer:
    """Return the one fork server that this process has for an interpreter."""
    return ForkServer(python)


class ForkedProcess:
    """A process that runs one function or program, as `subprocess.Popen` has it.

    Args:
        function: what to run, as `module:name`, or a program of several words.
        words: the process's `sys.argv`, without the program's name.
        folder: where it works, and finds its modules first.
        files: the descriptors of its standard input, output and error.
        python: the interpreter that it runs on.
        page: whether runs draw their page; otherwise it is an empty file.
        starts_anew: whether the processes that it starts are no copies, but its children.
        passed: other descriptors, which have the same numbers there.
    """

    def __init__(
        self,
        function: str,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        files: Sequence[int],
        python: str = sys.executable,
        page: bool = False,
        starts_anew: bool = False,
        passed: Sequence[int] = (),
    ) -> None:
        self._server = fork_server(python)
        request = {
            "function": function,
            "words": list(words),
            "folder": str(folder),
            "environment": dict(environment),
            "page": page,
            "starts_anew": starts_anew,
            "passed": list(passed),
        }
        self.pid: int = self._server.ask(request, [*files, *passed])
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


# A program in whose place a copy runs; the copy ends when the program is killed.
PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys, time
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
def ask(request, files=()):
    socket.send_fds(server, [json.dumps(request).encode()], files)
    return json.loads(server.recv(100000))[1]
pid = ask(
    dict(
        function="fedmx.cli.start:main", words=sys.argv[1:], folder=os.getcwd(), page=False,
        starts_anew=False, passed=[], tied=True, environment=dict(os.environ),
    ),
    [0, 1, 2],
)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
while (code := ask(dict(poll=pid))) is None:
    time.sleep(0.01)
os._exit(code if code >= 0 else 128 - code)
"""


def write_program(folder: Path) -> Path:
    """Write the program `fedmx` into a folder; its processes are copies."""
    server = fork_server(sys.executable)
    with open(os.devnull, "r+b") as nothing:
        files = [nothing.fileno()] * 3
        ForkedProcess("builtins:print", (), folder, {}, files).wait()  # by then it answers
    path = folder / "fedmx"
    path.write_text(PROGRAM.format(python=sys.executable, address=_address(str(server.pid))))
    path.chmod(0o755)
    return path


# It ends with its parent, which is not the one that made it.
OF_PARENT = """
import os, select, signal, sys, threading
parent = os.pidfd_open(int(sys.argv[1]))
def end():
    select.select([parent], [], [])
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end, daemon=True).start()
from fedmx.cli.start import main
main(sys.argv[2:])
"""


def popen(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    stdin: int,
    stdout: int = 1,
    stderr: Any = 2,
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start `python -c PROGRAM WORD...` with a copy, in the place of `subprocess.Popen`.

    Python starts anew where it reads something else when it starts: other instructions.
    """
    if any(env.get(name) != os.environ.get(name) for name in PORTABLE_ENVIRONMENT):
        return subprocess.Popen(
            command, env=env, pass_fds=pass_fds, stdin=stdin, stdout=stdout, stderr=stderr
        )
    python, how, program, *words = command
    if how == "-m":
        assert program == "fedmx.cli.of_parent"
        program = OF_PARENT
    with open(os.devnull, "r+b") as nothing:
        files = [one if isinstance(one, int) else one.fileno() for one in (stdin, stdout, stderr)]
        files = [nothing.fileno() if one == subprocess.DEVNULL else one for one in files]
        return ForkedProcess(program, words, Path.cwd(), env, files, python, passed=pass_fds)


def start_copies(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Let the processes that fedmx starts be copies."""
    copies = SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL)
    for name in (
        "fedmx.history.verify",
        "fedmx.simulation.executors.processes",
        "fedmx.sweeps.processes",
    ):
        set_attribute(importlib.import_module(name), "subprocess", copies)


def serve(connection: socket.socket) -> None:
    """Make copies of this process as they are asked for, until nobody can ask any more."""
    for module in PRELOADED:
        if ".mxnet." not in module or importlib.util.find_spec("mxnet") is not None:
            importlib.import_module(module)
    gc.freeze()
    living: set[int] = set()
    ended: dict[int, int] = {}
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(_address(str(os.getpid())))
    listening.listen(64)
    os.environ[ADDRESS] = str(os.getpid())
    asking = [connection, listening]
    tied: dict[socket.socket, int] = {}
    while connection in asking:
        for one in select.select(asking, [], [])[0]:
            if one is listening:
                asking.append(listening.accept()[0])
                continue
            message, files = b"", []
            with contextlib.suppress(ConnectionResetError):  # killed before it read the reply
                message, files, _, _ = socket.recv_fds(one, MAX_REQUEST_BYTES, MOST_FILES)
            if not message:
                asking.remove(one)
                one.close()
                if tied.get(one) in living:
                    os.kill(tied[one], signal.SIGKILL)
                continue
            request = json.loads(message)
            if "poll" in request:
                if request["poll"] in living:
                    pid, status = os.waitpid(request["poll"], os.WNOHANG)
                    if pid:
                        living.discard(pid)
                        ended[pid] = os.waitstatus_to_exitcode(status)
                reply = ended.get(request["poll"])
            else:
                reply = os.fork()
                if reply == 0:
                    _become(request, files)
                living.add(reply)
                ended.pop(reply, None)  # the system uses numbers again
                if request.get("tied"):
                    tied[one] = reply
                for file in files:
                    os.close(file)
            with contextlib.suppress(BrokenPipeError):  # who asked was killed
                one.send(json.dumps([request.get("number"), reply]).encode())
    for pid in living:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def write_no_page(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Let runs have an empty page: to draw it takes longer than they do."""
    recorder = importlib.import_module("fedmx.server.recorder")
    set_attribute(recorder, "write_report", lambda folders, path: path.touch())
    set_attribute(recorder, "write_elsewhere", lambda run: (run / "report.html").touch())


def _open_streams() -> None:
    """Open the standard streams anew: those of before know of /dev/null that it can seek."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    for number, name in ((1, "stdout"), (2, "stderr")):
        before, raw = getattr(sys, name), io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _become(request: dict[str, Any], files: Sequence[int]) -> None:
    """Run a function as a new process does, and end."""
    code = 1
    try:
        # First out of the way of the numbers that they are to have.
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD, 512) for file in files]
        os.closerange(3, 512)
        for number, file in zip([0, 1, 2, *request["passed"]], moved, strict=True):
            os.dup2(file, number)
            os.close(file)
        _open_streams()
        # A shell that puts pytest into the background has all that it starts ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(request["folder"])
        set_on_import = {name: v for name, v in os.environ.items() if name.startswith("MXNET_")}
        address = {ADDRESS: os.environ[ADDRESS]}
        os.environ.clear()
        os.environ.update(set_on_import | request["environment"] | address)
        if not request["page"]:
            write_no_page(setattr)
        if not request["starts_anew"]:
            start_copies(setattr)
        sys.argv = [request["function"], *request["words"]]
        if " " in request["function"]:
            named = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
            sys.path[:2] = ["", *filter(None, named)]
            exec(request["function"], {"__name__": "__main__"})  # noqa: S102
            sys.exit(0)
        sys.path[0] = request["folder"]
        module, _, name = request["function"].partition(":")
        # With these words Python would start it, should it begin again.
        sys.orig_argv = [
            *(sys.executable, "-c", f"from {module} import {name}; {name}()"),
            *request["words"],
        ]
        sys.exit(getattr(importlib.import_module(module), name)())  # as an entry point of pip's
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001, as Python does it before it ends
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)
    os._exit(0)
