"""The instruction set that a contender may use: the CPU's own, or AVX2 at most.

So one machine with AVX-512 can represent both kinds. Each library reads its own variable.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

RESTRICTED = {
    "native": {},
    "avx2": {
        "DNNL_MAX_CPU_ISA": "AVX2",  # oneDNN, in MXNet
        "ONEDNN_MAX_CPU_ISA": "AVX2",  # oneDNN, in PyTorch
        "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's own kernels
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",  # MKL, in PyTorch
        "OPENBLAS_CORETYPE": "Haswell",  # OpenBLAS, in MXNet and numpy
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",  # JAX
    },
}


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--isa`, which names the instruction set."""
    parser.add_argument(
        "--isa",
        choices=list(RESTRICTED),
        default="native",
        help="the instruction set: the CPU's own, or AVX2 at most",
    )


def restricted(environment: Mapping[str, str], isa: str) -> dict[str, str]:
    """Return an environment that limits libraries to this instruction set."""
    every = {name for variables in RESTRICTED.values() for name in variables}
    kept = {name: value for name, value in environment.items() if name not in every}
    return {**kept, **RESTRICTED[isa]}
