"""Processes that begin with MXNet and fedmx loaded: copies of one that loaded them once.

Loading takes two seconds of a core. What a copy does from there on is what a new process does, and
it can be killed as any other.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    "fedmx.cli.main",
    "fedmx.deployment.join",
    "fedmx.report.page",
    "fedmx.simulation",
    "layers.compute.engines.mxnet.engine",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "sklearn.datasets",
)
MAX_REQUEST_BYTES = 100_000
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
    """A process that runs one function, as `subprocess.Popen` has it.

    Args:
        function: what to run, as `module:name`.
        words: the process's `sys.argv`, without the program's name.
        folder: where it works, and finds its modules first.
        files: the descriptors of its standard input, output and error.
        python: the interpreter that it runs on.
    """

    def __init__(
        self,
        function: str,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        files: Sequence[int],
        python: str = sys.executable,
    ) -> None:
        self._server = fork_server(python)
        request = {
            "function": function,
            "words": list(words),
            "folder": str(folder),
            "environment": dict(environment),
        }
        self.pid: int = self._server.ask(request, files)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code once the process has ended."""
        if self.returncode is None:
            self.returncode = self._server.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout_s: float) -> int:
        """Return the exit code; wait for it."""
        ends = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
            time.sleep(POLL_S)
        return code

    def kill(self) -> None:
        """Send SIGKILL, unless the process was seen to have ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def serve(connection: socket.socket) -> None:
    """Make copies of this process as they are asked for, until nobody can ask any more."""
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    living: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
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


def _become(request: dict[str, Any], files: Sequence[int]) -> None:
    """Run a function as a new process does, and end."""
    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, 64)
        os.chdir(request["folder"])
        set_on_import = {name: v for name, v in os.environ.items() if name.startswith("MXNET_")}
        os.environ.clear()
        os.environ.update(set_on_import | request["environment"])
        sys.argv = [request["function"], *request["words"]]
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
