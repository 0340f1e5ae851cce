"""What all tests share: one thread, fixed random draws, the real data, nothing left running."""

from __future__ import annotations

import os

# Before numpy and MXNet are loaded: they read it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=50,  # the same ones each time; a search by hand has more
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# For a search by hand: HYPOTHESIS_PROFILE=explore make check
hypothesis.settings.register_profile(
    "explore", hypothesis.settings.get_profile("ci"), derandomize=False, max_examples=2000
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# What is started once and kept until this process ends; what it starts in turn has to end.
STAY_ON_PURPOSE = ("multiprocessing.resource_tracker", "tests/fedmx/fork_server.py")

STDERR = pytest.StashKey[int]()
NO_SKIPS = os.environ.get("FEDMX_NO_SKIPS") == "1"
# Tests that may skip all the same: one environment has one interpreter, and PyTorch is an extra.
MAY_SKIP = {
    "needs_second_python": "compares two interpreters, and may skip even with FEDMX_NO_SKIPS=1",
    "needs_torch": "needs PyTorch, and may skip even with FEDMX_NO_SKIPS=1; .ci/torch runs it",
}
# How a test fails where MXNet has no wheel: fedmx has other engines there.
NO_MXNET = ("No module named 'mxnet", "the package mxnet is not installed")


class _MissingMXNet:
    """Skips tests that fail for want of MXNet, where it is not installed.

    As the last finder of modules it sees what asked for MXNet. Other processes say it.
    """

    def __init__(self) -> None:
        self.asked = False
        self._errors: list[BaseException] = []  # a fixture's error comes again in later tests
        sys.meta_path.append(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.asked |= name == "mxnet"

    def skip(self, report: pytest.TestReport | pytest.CollectReport, error: Any = None) -> None:
        """Turn the failure into a skip."""
        asked, self.asked = self.asked, False
        if not report.failed:
            return
        said = "".join([report.longreprtext, *(text for _, text in report.sections)])
        if asked or error in self._errors or any(one in said for one in NO_MXNET):
            self._errors.append(error)
            report.outcome = "skipped"
            report.longrepr = (report.nodeid.partition("::")[0], 0, "needs MXNet, not installed")


NEEDS_MXNET = "needs_mxnet: its processes train on MXNet, and what they say is not seen"
MISSING_MXNET = _MissingMXNet() if find_spec("mxnet") is None else None


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets (`mnist/`, `cifar-10/`, ...); the test is skipped without it."""
    named = os.environ.get("FEDMX_DATA")
    if not named:
        pytest.skip(
            "needs real data: set FEDMX_DATA to the folder that holds mnist/, cifar-10/, ..."
        )
    root = Path(named)
    if not root.is_dir():
        pytest.fail(f"FEDMX_DATA={named} is not a folder", pytrace=False)
    return root


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the test; a shell may have pytest ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure; an expected failure (xfail) stays what it is."""
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: nothing may skip with FEDMX_NO_SKIPS=1, but: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if MISSING_MXNET is not None:
        MISSING_MXNET.skip(report, call.excinfo and call.excinfo.value)
    if not any(item.get_closest_marker(one) for one in MAY_SKIP):
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if MISSING_MXNET is not None:
        MISSING_MXNET.skip(report)
    _refuse_skip(report)
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, keep stderr as it is before pytest captures it, and folders absolute.

    A process of pytest-xdist has no stdout. Tests start programs in folders of their own, where a
    relative FEDMX_DATA would be another one.
    """
    for name in ("FEDMX_DATA", "FEDMX_VECTORS"):
        if os.environ.get(name):
            os.environ[name] = str(Path(os.environ[name]).absolute())
    config.addinivalue_line("markers", NEEDS_MXNET)
    for name, text in MAY_SKIP.items():
        config.addinivalue_line("markers", f"{name}: {text}")
    config.stash[STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """End a test that hangs, with all stacks, also where no other thread of Python can run."""
    stderr = item.config.stash[STDERR]
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=stderr)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if MISSING_MXNET is not None and item.get_closest_marker("needs_mxnet"):
        pytest.skip("needs MXNet, not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files whose tests may take long: no process is to wait for one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def _running_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.daemon}


def _child_processes() -> dict[int, str]:
    """The living children of this process, and of those that stay on purpose, by process number."""
    found = {}
    waiting = psutil.Process().children()
    while waiting:
        process = waiting.pop()
        try:
            command = " ".join(process.cmdline())
            if any(server in command for server in STAY_ON_PURPOSE):
                waiting += process.children()
            elif process.status() != psutil.STATUS_ZOMBIE:  # ended, and not yet waited for
                found[process.pid] = command
        except psutil.NoSuchProcess:
            continue  # ended in the meantime
    return found


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """A file of tests ends every thread and process that it started."""
    threads, children = _running_threads(), _child_processes()
    yield
    left = [f"thread {thread.name}" for thread in _running_threads() - threads]
    left += [
        f"process {pid}: {command[:120]}"
        for pid, command in _child_processes().items()
        if pid not in children
    ]
    assert not left, "left running: " + "; ".join(left)
