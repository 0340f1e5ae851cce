"""How MXNet has to run so that the same seed gives the same bits, quickly and quietly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

ENVIRONMENT = {
    # An executor bound for inference otherwise keeps fused copies of the first weights it saw.
    "MXNET_SUBGRAPH_BACKEND": "NONE",
    "MXNET_SUBGRAPH_VERBOSE": "0",
    # Operators run in the calling thread: no hand-over costs, and no worker thread whose number of
    # OpenMP threads could differ from the caller's.
    "MXNET_ENGINE_TYPE": "NaiveEngine",
    "MXNET_ENGINE_INFO": "0",
    "MXNET_STORAGE_FALLBACK_LOG_VERBOSE": "0",
}


def prepare() -> None:
    """Set MXNet's environment; a variable that the user has set already stays as it is."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@lru_cache(maxsize=1)
def _pools() -> ThreadpoolController:
    import mxnet  # noqa: F401  (its libraries must be loaded to be found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run operators of the calling thread on one OpenMP thread.

    oneDNN splits sums among its threads, so that their number shows in the last bits.
    """
    with _pools().limit(limits=1, user_api="openmp"):
        yield
