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
from types import ModuleType
from typing import Any

from layers.compute.engines.one_thread import OneThread, limit_libraries, restore_libraries

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


def start_quietly(mxnet: ModuleType) -> None:
    """Start MXNet without its notice.

    Otherwise it starts when it is first used, or when the process forks or exits.
    """
    with _without(ENGINE_NOTICE):
        mxnet.nd.zeros(1).wait_to_read()


class MXNetThread(OneThread):
    """A context in which MXNet's operators run on one OpenMP thread, and other threads run none.

    MXNet is not thread-safe. The number of OpenMP threads is set in the thread that runs the
    operators.

    Attributes:
        libraries: the OpenMP libraries, as threadpoolctl has them.
    """

    def __init__(self) -> None:
        import mxnet as mx
        from threadpoolctl import ThreadpoolController

        super().__init__()
        mx.nd.zeros(1).wait_to_read()  # loads the OpenMP libraries
        self.libraries: list[Any] = list(
            ThreadpoolController().select(user_api="openmp").lib_controllers
        )

    def limit(self, before: list[int]) -> None:
        _run_as_operator(lambda: limit_libraries(self.libraries, before))

    def restore(self, before: list[int]) -> None:
        _run_as_operator(lambda: restore_libraries(self.libraries, before))


_starting = threading.Lock()


@lru_cache(maxsize=1)
def _start() -> MXNetThread:
    return MXNetThread()


def one_thread() -> MXNetThread:
    """Return the context in which operators run on one OpenMP thread; it starts MXNet."""
    with _starting:
        return _start()
