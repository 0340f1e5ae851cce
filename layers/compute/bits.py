"""Equal bits on different machines: the instruction set and the BLAS threads of a process.

The last bits of a sum depend on the vector instructions that compute it. oneDNN, OpenBLAS, MKL,
PyTorch and numpy choose them by the CPU when they are loaded or first used, and each has an
environment variable that limits them. ``portable`` is AVX2 with FMA, which x86 CPUs have had since
2013 (Intel) and 2015 (AMD). The variables must be set before Python starts, or before numpy is
imported; this module does not import it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from layers.compute.errors import ComputeError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

NATIVE, PORTABLE = "native", "portable"

PORTABLE_ENVIRONMENT: Mapping[str, str] = {
    "DNNL_MAX_CPU_ISA": "AVX2",  # oneDNN, in MXNet and PyTorch
    "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's own loops
    # MKL, in PyTorch: the only branch that it has on the processors of every vendor
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",  # OpenBLAS, in MXNet, numpy and SciPy
    # numpy's own loops; its version determines which of the names it knows
    "NPY_DISABLE_CPU_FEATURES": (
        "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"
    ),
}
# The category of numpy's warning about other names depends on its version.
NUMPYS_NOTICE = "ignore:During parsing environment variable"
NEEDED = ("avx2", "fma")
_DECIDING = (
    "MXNET_",
    "DNNL_",
    "ONEDNN_",
    "ATEN_",
    "MKLDNN_",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "OPENBLAS_CORETYPE",
    "NPY_",
)
_KINDS = ("avx512f", "avx2", "avx", "sse4_1")
HALF_UNITS = " on 256-bit units"


class OtherInstructionsError(ComputeError):
    """This process does not run on the instructions that a portable run needs."""


def is_portable() -> bool:
    """Return whether this process runs on the portable instructions."""
    return all(os.environ.get(name) == value for name, value in PORTABLE_ENVIRONMENT.items())


def portable_environment() -> dict[str, str]:
    """Return this process's environment with the variables that make a new process portable.

    Raises:
        ComputeError: this CPU does not have the instructions.
    """
    missing = [flag for flag in NEEDED if flag not in cpu_flags()]
    if missing:
        raise ComputeError(
            f"compute.bits: portable needs a CPU with {' and '.join(NEEDED)}, but this one has no "
            f"{' and no '.join(missing)}; use bits: native on machines of one kind"
        )
    filters = [one for one in (os.environ.get("PYTHONWARNINGS"), NUMPYS_NOTICE) if one]
    return {**os.environ, **PORTABLE_ENVIRONMENT, "PYTHONWARNINGS": ",".join(filters)}


def require(bits: str) -> None:
    """Check that this process runs on the instructions of an experiment.

    Args:
        bits: ``native`` or ``portable``.

    Raises:
        OtherInstructionsError: it runs on other instructions.
        ComputeError: this CPU does not have the instructions.
    """
    if bits == NATIVE or is_portable():
        return
    portable_environment()
    settings = " ".join(f"{name}='{value}'" for name, value in PORTABLE_ENVIRONMENT.items())
    raise OtherInstructionsError(
        "compute.bits: portable, but this process runs on the CPU's own instructions; use "
        f"the command fedmx, or start Python with {settings}"
    )


def instructions() -> str:
    """Return the vector instructions that this process uses, such as ``avx512f`` or ``avx2``.

    The units that compute them are named where the kernels are chosen by them.
    """
    if is_portable():
        return PORTABLE
    best = next((kind for kind in _KINDS if kind in cpu_flags()), "unknown")
    best += HALF_UNITS if has_half_units() else ""
    limit = os.environ.get("DNNL_MAX_CPU_ISA")
    return f"{best}, oneDNN at most {limit}" if limit else best


def variables() -> dict[str, str]:
    """Return the environment variables of this process that may decide bits, by name.

    Those of portable instructions are left out, and those that decide how much is logged.
    """
    own = PORTABLE_ENVIRONMENT if is_portable() else {}
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_DECIDING) and name not in own and "VERBOSE" not in name
    }


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _cpu() -> Mapping[str, str]:
    """Return what Linux says of the first core, by name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def cpu_flags() -> frozenset[str]:
    """Return the CPU's flags, as Linux names them."""
    return frozenset(_cpu().get("flags", "").split())


def has_half_units() -> bool:
    """Return whether this CPU takes two turns for an AVX-512 instruction, as AMD's Zen 4 does."""
    family = _cpu().get("vendor_id"), _cpu().get("cpu family")
    # Zen 3 has the same family, but no AVX-512.
    return family == ("AuthenticAMD", "25") and "avx512f" in cpu_flags()


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    """Return handles of the libraries in this process; finding them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit numpy's BLAS to one thread: the number of threads changes the last bits of a sum."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield
