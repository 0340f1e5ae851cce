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


class _Started:
    """MXNet after its start: its OpenMP libraries, and the lock to hold while operators run."""

    def __init__(self) -> None:
        import mxnet as mx
        from threadpoolctl import ThreadpoolController

        with _without(ENGINE_NOTICE):
            mx.nd.zeros(1).wait_to_read()
        self.libraries: list[Any] = list(
            ThreadpoolController().select(user_api="openmp").lib_controllers
        )
        # MXNet is not thread-safe.
        self.turn = threading.RLock()


_starting = threading.Lock()


@lru_cache(maxsize=1)
def _start() -> _Started:
    return _Started()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run operators on one OpenMP thread.

    oneDNN splits a sum among its threads, so their number changes the last bits. It is set in the
    thread that runs the operators, and restored afterwards.
    """
    with _starting:
        mxnet = _start()
    before: list[int] = []

    def limit() -> None:
        for library in mxnet.libraries:
            before.append(library.get_num_threads())
            library.set_num_threads(1)

    def restore() -> None:
        # An interrupt may have come before `limit` reached the last library.
        for library, threads in zip(mxnet.libraries, before, strict=False):
            library.set_num_threads(threads)

    with mxnet.turn:
        _run_as_operator(limit)
        try:
            yield
        finally:
            _run_as_operator(restore)
