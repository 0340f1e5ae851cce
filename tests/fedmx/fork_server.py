"""Processes that begin with MXNet and fedmx loaded: copies of one that loaded them once.

It is fedmx's own fork server, which other processes can also ask, and which places each process in
a folder and an environment of its own.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedmx import fork_server as own
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
ADDRESS = "FEDMX_TESTS_FORK_SERVER"


class ForkServer(own.Asker):
    """The process that others are copies of; it ends them when this process ends.

    Args:
        python: the interpreter that they run on.
    """

    def __init__(self, python: str) -> None:
        if ADDRESS in os.environ:  # this process is a copy itself, and asks where it was made
            super().__init__(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            self._socket.connect(_address(os.environ[ADDRESS]))
            return
        environment = {name: v for name, v in os.environ.items() if not name.startswith("MXNET_")}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
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


class ForkedProcess(own.ForkedProcess):
    """A process that runs one function or program.

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
        server = fork_server(python)
        request = {
            "function": function,
            "words": list(words),
            "folder": str(folder),
            "environment": dict(environment),
            "page": page,
            "starts_anew": starts_anew,
            "passed": list(passed),
        }
        super().__init__(server, server.ask(request, [*files, *passed]))


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
        program = f"import runpy; runpy.run_module({program!r}, run_name='__main__')"
    with open(os.devnull, "r+b") as nothing:
        files = [one if isinstance(one, int) else one.fileno() for one in (stdin, stdout, stderr)]
        files = [nothing.fileno() if one == subprocess.DEVNULL else one for one in files]
        return ForkedProcess(program, words, Path.cwd(), env, files, python, passed=pass_fds)


def start_copies(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Let the processes that fedmx starts be copies."""
    copies = SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL)
    for name in (
        "fedmx.fork_server",
        "fedmx.history.verify",
        "fedmx.simulation.executors.processes",
    ):
        set_attribute(importlib.import_module(name), "subprocess", copies)


def serve(connection: socket.socket) -> None:
    """Make copies of this process as they are asked for, until nobody can ask any more."""
    for module in PRELOADED:
        if ".mxnet." not in module or importlib.util.find_spec("mxnet") is not None:
            importlib.import_module(module)
    gc.freeze()
    children = own.Children()
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
            request, files = own.received(one)
            if request is None:
                asking.remove(one)
                one.close()
                if tied.get(one) in children.living:
                    os.kill(tied[one], signal.SIGKILL)
                continue
            if "poll" in request:
                own.reply(one, request, children.poll(request["poll"]))
                continue
            pid = os.fork()
            if pid == 0:
                _become(request, files)
            children.add(pid)
            if request.get("tied"):
                tied[one] = pid
            for file in files:
                os.close(file)
            own.reply(one, request, pid)
    children.send_signal(signal.SIGKILL)


def write_no_page(set_attribute: Callable[[Any, str, Any], None]) -> None:
    """Let runs have an empty page: to draw it takes longer than they do."""
    recorder = importlib.import_module("fedmx.server.recorder")
    set_attribute(recorder, "write_report", lambda folders, path: path.touch())
    set_attribute(recorder, "write_elsewhere", lambda run: (run / "report.html").touch())


def _become(request: dict[str, Any], files: Sequence[int]) -> None:
    """Run a function as a new process does, and end."""

    def run(program: str) -> None:
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
        named = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:1] = [request["folder"], *filter(None, named)]
        exec(program, {"__name__": "__main__"})  # noqa: S102

    program = request["function"]
    if " " not in program:
        module, _, name = program.partition(":")
        program = f"import sys; from {module} import {name}; sys.exit({name}())"
    words = ["-c", program, *request["words"]]
    own.become(words, files, run, request["passed"])


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)
    os._exit(0)
