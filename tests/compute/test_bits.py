"""The instruction set of a process: settings, reports and refusals."""

import os
import subprocess
import sys

import pytest

from layers.compute import bits
from layers.compute.errors import ComputeError

LOOK = """
import numpy
try:
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
except ImportError:
    from numpy.core._multiarray_umath import __cpu_dispatch__, __cpu_features__
left = [one for one in __cpu_dispatch__ if __cpu_features__.get(one)]
print(sum("512" in one or one == "X86_V4" for one in left), len(left) > 0)
from layers.compute.bits import instructions, is_portable
print(instructions(), is_portable())
"""


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in bits.PORTABLE_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    found = {"sse4_1", "avx", "avx2", "fma"}
    monkeypatch.setattr(bits, "cpu_flags", lambda: found)
    monkeypatch.setattr(bits, "_cpu", dict)
    return found


def test_numpy_in_a_portable_process_uses_no_wider_instructions_and_does_not_warn() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=bits.portable_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("0 True\nportable True\n", "")


def test_a_native_process_only_accepts_native_work(flags: set[str]) -> None:
    bits.require("native")
    with pytest.raises(bits.OtherInstructionsError, match="use the command fedmx, or start Python"):
        bits.require("portable")


def test_a_portable_process_accepts_both(flags: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bits.PORTABLE_ENVIRONMENT.items():
        assert not bits.is_portable()
        monkeypatch.setenv(name, value)
    assert bits.is_portable()
    bits.require("native")
    bits.require("portable")
    assert bits.instructions() == "portable"


@pytest.mark.parametrize("missing", ["avx2", "fma"])
def test_a_cpu_without_the_instructions_is_refused(flags: set[str], missing: str) -> None:
    flags.remove(missing)
    with pytest.raises(ComputeError, match=f"has no {missing}; use bits: native"):
        bits.require("portable")
    with pytest.raises(ComputeError, match=f"has no {missing}; use bits: native"):
        bits.portable_environment()


def test_instructions_names_the_best_of_the_cpu_and_the_limit(
    flags: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bits.instructions() == "avx2"
    flags.add("avx512f")
    assert bits.instructions() == "avx512f"
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX")
    assert bits.instructions() == "avx512f, oneDNN at most AVX"
    flags.clear()
    monkeypatch.delenv("DNNL_MAX_CPU_ISA")
    assert bits.instructions() == "unknown"


@pytest.mark.parametrize(
    ("vendor", "family", "flag", "half"),
    [
        ("AuthenticAMD", "25", "avx512f", True),
        ("AuthenticAMD", "25", "f16c", False),
        ("AuthenticAMD", "26", "avx512f", False),
        ("GenuineIntel", "6", "avx512f", False),
    ],
)
def test_instructions_name_the_units_of_a_zen_4(
    flags: set[str],
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    family: str,
    flag: str,
    half: bool,
) -> None:
    flags.add(flag)
    monkeypatch.setattr(bits, "_cpu", lambda: {"vendor_id": vendor, "cpu family": family})
    assert bits.has_half_units() == half
    assert ("256-bit" in bits.instructions()) == half


def test_variables_that_may_decide_bits_are_named_and_those_of_portable_instructions_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in bits.variables():
        monkeypatch.delenv(name)
    given = {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16", "MXNET_SAFE_ACCUMULATION": "0"}
    others = {"DNNL_VERBOSE": "1", "MXNET_EXEC_VERBOSE_LOGGING": "1", "FEDMX_DATA": "data"}
    for name, value in {**given, **others}.items():
        monkeypatch.setenv(name, value)
    assert list(bits.variables().items()) == sorted(given.items())
    for name in bits.PORTABLE_ENVIRONMENT:
        monkeypatch.setenv(name, "native")
        assert bits.variables() == {**given, name: "native"}
        monkeypatch.delenv(name)
    for name, value in bits.PORTABLE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert list(bits.variables().items()) == sorted(given.items())


def test_the_cores_are_those_of_the_process_or_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0: {1, 4, 5}}[process])
    assert bits.cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    for found, cores in ((7, 7), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda found=found: found)
        assert bits.cores() == cores


def test_numpys_blas_has_one_thread_for_a_while() -> None:
    libraries = bits._libraries().select(user_api="blas").lib_controllers
    before = [library.get_num_threads() for library in libraries]
    with bits.one_blas_thread():
        assert {library.get_num_threads() for library in libraries} == {1}
    assert [library.get_num_threads() for library in libraries] == before


def test_own_filters_of_warnings_are_kept(flags: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error::FutureWarning")
    environment = bits.portable_environment()
    assert environment["PYTHONWARNINGS"] == f"error::FutureWarning,{bits.NUMPYS_NOTICE}"
    assert {**os.environ, **environment} == environment
