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
import io
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layers.compute.bits import PORTABLE_ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    "fedmx.cli.main",
    "fedmx.cli.rounds",
    "fedmx.deployment.join",
    "fedmx.experiment.early",
    "fedmx.history",
    "fedmx.report.page",
    "fedmx.server.recorder",
    "fedmx.simulation",
    "layers.compute.engines.mxnet.engine",
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
POLL_S = 0.01


class ForkServer:
    """The process that others are copies of; it ends them when this process ends.

    Args:
        python: the interpreter that they run on.
    """

    def __init__(self, python: str) -> None:
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
        atexit.register(self.close)

    def ask(self, request: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
        socket.send_fds(self._socket, [json.dumps(request).encode()], files)
        return json.loads(self._socket.recv(MAX_REQUEST_BYTES))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def fork_server(python: str) -> ForkServer:
    """Return the one fork server that this process has for an interpreter."""
    return ForkServer(python)


class ForkedProcess:
    """A process that runs one function or program, as `subprocess.Popen` has it.

    Args:
        function: what to run, as `module:name`, or the text of a program.
        words: the process's `sys.argv`, without the program's name.
        folder: where it works, and finds its modules first.
        files: the descriptors of its standard input, output and error.
        python: the interpreter that it runs on.
        page: whether runs draw their page; otherwise it is an empty file.
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
        passed: Sequence[int] = (),
    ) -> None:
        self._server = fork_server(python)
        request = {
            "function": function,
            "words": list(words),
            "folder": str(folder),
            "environment": dict(environment),
            "page": page,
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


def popen(
    command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], **streams: int
) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start `python -c PROGRAM WORD...` with a copy, in the place of `subprocess.Popen`.

    Python starts anew where it reads something else when it starts: other instructions.
    """
    if any(env.get(name) != os.environ.get(name) for name in PORTABLE_ENVIRONMENT):
        return subprocess.Popen(command, env=env, pass_fds=pass_fds, **streams)
    python, _, program, *words = command
    with open(os.devnull, "rb") as nothing:
        files = [nothing.fileno(), streams.get("stdout", 1), 2]
        return ForkedProcess(program, words, Path.cwd(), env, files, python, passed=pass_fds)


def serve(connection: socket.socket) -> None:
    """Make copies of this process as they are asked for, until nobody can ask any more."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    living: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, MOST_FILES)
        if not message:
            break
        request = json.loads(message)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            living.discard(pid)
            reply = os.waitstatus_to_exitcode(status) if pid else None
        else:
            reply = os.fork()
            if reply == 0:
                connection.close()
                _become(request, files)
            living.add(reply)
            for file in files:
                os.close(file)
        connection.send(json.dumps(reply).encode())
    for pid in living:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def write_no_page(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Let runs have an empty page: to draw it takes longer than they do."""
    recorder = importlib.import_module("fedmx.server.recorder")
    set_attribute(recorder, "write_report", lambda folders, path: path.touch())


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
        os.environ.clear()
        os.environ.update(set_on_import | request["environment"])
        if not request["page"]:
            write_no_page(setattr)
        sys.argv = [request["function"], *request["words"]]
        if request["passed"]:
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
