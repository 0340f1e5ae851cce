"""One thread for numpy's linear algebra: how it splits a sum shows in the last bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """Return handles on the libraries in this process; to look for them takes a millisecond."""
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit numpy's BLAS to one thread, so that dot products are the same with any number."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield
