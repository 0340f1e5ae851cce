"""The growth of the memory in use, as the C library counts it."""

import ctypes
import gc
from collections.abc import Callable

import pytest

FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Mallinfo(ctypes.Structure):
    """glibc's account of its memory, in bytes; see mallinfo(3)."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def bytes_in_use() -> int:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("needs mallinfo2 of glibc 2.33")
    libc.mallinfo2.restype = _Mallinfo
    gc.collect()
    known = libc.mallinfo2()
    return int(known.uordblks + known.hblkhd)


def grown(work: Callable[[], None], times: int) -> float:
    """Return by how many bytes a warm piece of work grows the memory."""
    for _ in range(3):
        work()
    before = bytes_in_use()
    for _ in range(times):
        work()
    return (bytes_in_use() - before) / times
