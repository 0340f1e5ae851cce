"""Settings with which MXNet gives the same bits for the same seed, fast and without notices."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

ENVIRONMENT: Mapping[str, str] = {
    # Otherwise an executor that is bound for inference keeps fused copies of the first weights.
    # "default" rewrites nothing, as "NONE" does, and its notices can be switched off.
    "MXNET_SUBGRAPH_BACKEND": "default",
    "MXNET_SUBGRAPH_VERBOSE": "0",
    # Operators run in the calling thread; other threads take a quarter of a small model's step.
    "MXNET_ENGINE_TYPE": "NaiveEngine",
    "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0",
    # Operators of oneDNN, and sums in float32.
    "MXNET_MKLDNN_ENABLED": "1",
    "MXNET_SAFE_ACCUMULATION": "0",
}
ENGINE_NOTICE = b"MXNet start using engine"


def prepare() -> None:
    """Set MXNet's environment variables, whatever the user's shell has set: they decide bits."""
    os.environ.update(ENVIRONMENT)


class _Context(ctypes.Structure):
    """MXNet's device: kind 1 is the CPU."""

    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))


_Operator = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_CPU = _Context(1, 0)


def _run_as_operator(function: Callable[[], None]) -> None:
    """Run a function in the thread that runs MXNet's operators, and wait for it."""
    from mxnet.base import _LIB, check_call

    operator = _Operator(lambda _context, _parameter: function())
    check_call(
        _LIB.MXEnginePushSync(
            operator, None, None, ctypes.byref(_CPU), None, 0, None, 0, None, 0, b"threads"
        )
    )
    check_call(_LIB.MXNDArrayWaitAll())


@contextmanager
def _without(notice: bytes) -> Iterator[None]:
    """Suppress lines on stderr that contain `notice`, about which a user can do nothing."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            said.seek(0)
            for line in said:
                if notice not in line:
                    os.write(2, line)


class _Thread(threading.local):
    """The calling thread: how often its operators are limited, and their threads before that."""

    def __init__(self) -> None:
        self.limits = _Limits()


class _Limits:
    def __init__(self) -> None:
        self.held = 0
        self.before: list[int] = []


class OneThread:
    """A context in which operators run on one OpenMP thread, and other threads run none.

    oneDNN splits a sum among its threads, so their number changes the last bits. It is set in the
    thread that runs the operators, and restored afterwards. To enter the context again, inside of
    itself or of `kept`, takes no time.

    Attributes:
        libraries: the OpenMP libraries, as threadpoolctl has them.
        turn: is held while operators run, since MXNet is not thread-safe.
        thread: `thread.limits.held` is how often the calling thread is in the context or in `kept`.
    """

    def __init__(self) -> None:
        import mxnet as mx
        from threadpoolctl import ThreadpoolController

        with _without(ENGINE_NOTICE):
            mx.nd.zeros(1).wait_to_read()
        self.libraries: list[Any] = list(
            ThreadpoolController().select(user_api="openmp").lib_controllers
        )
        self.turn = threading.RLock()
        self.thread = _Thread()

    def __enter__(self) -> None:
        self.turn.acquire()
        limits = self.thread.limits
        limits.held += 1
        if limits.held == 1:
            try:
                _run_as_operator(lambda: self._limit(limits))
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_error: object) -> None:
        limits = self.thread.limits
        limits.held -= 1
        try:
            if not limits.held:
                _run_as_operator(lambda: self._restore(limits))
        finally:
            self.turn.release()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep this thread's operators on one OpenMP thread; other threads may run theirs."""
        limits = self.thread.limits
        with self:
            limits.held += 1
        try:
            yield
        finally:
            if limits is self.thread.limits:
                with self:
                    limits.held -= 1
            else:  # a generator may end in another thread, whose limits this must not change
                limits.held -= 1

    def _limit(self, limits: _Limits) -> None:
        limits.before.clear()
        for library in self.libraries:
            limits.before.append(library.get_num_threads())
            library.set_num_threads(1)

    def _restore(self, limits: _Limits) -> None:
        # An interrupt may have come before `_limit` reached the last library.
        for library, threads in zip(self.libraries, limits.before, strict=False):
            library.set_num_threads(threads)


_starting = threading.Lock()


@lru_cache(maxsize=1)
def _start() -> OneThread:
    return OneThread()


def one_thread() -> OneThread:
    """Return the context in which operators run on one OpenMP thread; it starts MXNet."""
    with _starting:
        return _start()
