"""One thread for numpy's linear algebra: how many threads share a sum changes its last bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """Return handles on the libraries in this process; finding them takes a millisecond."""
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit numpy's BLAS to one thread, so that the same dot product has the same bits."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield
