"""MXNet and gluoncv load on every supported Python and numpy; other modules do not change."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import layers.compute  # noqa: F401, from here on MXNet can be imported
from layers.compute.engines.mxnet import loading
from layers.compute.engines.mxnet.loading import (
    DROPPED_NAMES,
    KNOWN,
    LooseVersion,
    SourceLoader,
    StrictVersion,
    UnsupportedVersion,
    check_version,
    release,
)

pytest.importorskip("mxnet", reason="needs MXNet, not installed here")

ROOT = Path(__file__).resolve().parents[3]
NUMPY = release(np.__version__)[:2]


def run_program(program: str, *options: str, folder: Path = ROOT) -> str:
    """The output of a program in a separate interpreter."""
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{ROOT}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What a user's own code finds.
LOOKS = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
def look(thing, name):
    try: return repr(getattr(thing, name)).partition(" at 0x")[0]
    except AttributeError: return name + " is missing"
def find(module):
    try: return str(__import__(module, fromlist=["x"]).__file__)
    except ImportError as error: return str(error)
seen = [look(np, name) for name in {names}] + [find("distutils.version"), find("numpy.compat")]
"""
LOADS = """
import fedmx
import mxnet, gluoncv
from layers.compute.engines.mxnet.models import build_model
build_model("2nn")()
build_model("gluoncv:cifar_resnet20_v1")()
"""


@pytest.mark.parametrize("options", [(), ("-S",)])
def test_a_users_own_numpy_and_distutils_do_not_change(options: tuple[str, ...]) -> None:
    # With -S no package provides its own distutils; the path must then be given.
    path = f"import sys; sys.path[:] = {sys.path!r}\n"
    looks = LOOKS.format(names=sorted(DROPPED_NAMES))
    before = run_program(path + looks + "print(seen)", *options)
    after = run_program(path + LOADS + looks + "print(seen)", *options)
    assert before == after
    assert ("msort is missing" in after) == (NUMPY >= (2, 0))
    if options and sys.version_info >= (3, 12):
        assert "No module named 'distutils'" in after


def test_numpys_bool_does_not_change_for_the_user() -> None:
    import mxnet

    assert mxnet.numpy.bool is bool
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if NUMPY >= (2, 0):
            assert np.bool is np.bool_
        elif NUMPY >= (1, 24):
            assert not hasattr(np, "bool")
        else:
            assert np.bool is bool


@pytest.mark.parametrize("name", sorted(DROPPED_NAMES))
def test_the_table_gives_the_first_numpy_without_each_name(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(np, name, None)
    if DROPPED_NAMES[name].gone > NUMPY:
        assert found is not None
    elif DROPPED_NAMES[name].gone == (1, 20) and NUMPY < (2, 0):
        with pytest.raises(RuntimeError, match="was removed"):
            found()
    else:
        assert found is (np.bool_ if name == "bool" and NUMPY >= (2, 0) else None)


def test_a_dropped_name_has_its_former_meaning() -> None:
    stands_for = {name: entry.make(np) for name, entry in DROPPED_NAMES.items() if made_here(name)}
    assert (stands_for["bool"], stands_for["int"], stands_for["float"]) == (bool, int, float)
    assert stands_for["PINF"] == stands_for["Inf"] == np.inf == -stands_for["NINF"]
    assert np.signbit([stands_for["NZERO"], stands_for["PZERO"]]).tolist() == [True, False]
    assert np.isnan([stands_for["NaN"], stands_for["NAN"]]).all()
    rows = np.array([[3, 1], [1, 2], [2, 0]])
    assert stands_for["msort"](rows).tolist() == [[1, 0], [2, 1], [3, 2]]
    assert stands_for["in1d"](rows, [2, 3]).tolist() == [True, False, False, True, True, False]
    assert stands_for["in1d"](rows, [2, 3], invert=True).sum() == 3
    assert stands_for["product"](rows[:2]) == 6
    assert stands_for["alltrue"](rows, axis=1).tolist() == [True, True, False]
    assert stands_for["sometrue"](rows == 0)
    assert isinstance("x", stands_for["compat"].basestring)
    with pytest.raises(RuntimeError, match="npv"):
        stands_for["npv"](0.1, [1, 2])


def made_here(name: str) -> bool:
    """Whether this numpy has the name's successor."""
    return name != "trapz" or hasattr(np, "trapezoid")


def numpy_names(package: str) -> Iterator[str]:
    """Every name that the modules of a package use of numpy."""
    spec = importlib.util.find_spec(package)
    assert spec.origin is not None
    for path in sorted(Path(spec.origin).parent.rglob("*.py")):
        code = path.read_bytes()
        if b"numpy" not in code:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(code)))
        aliases = {
            alias.asname or alias.name
            for node in nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "numpy"
        }
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in aliases:
                    yield node.attr
            elif isinstance(node, ast.ImportFrom) and node.module == "numpy" and not node.level:
                yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("package", loading.PACKAGES)
def test_every_name_that_mxnet_and_gluoncv_use_of_numpy_exists(package: str) -> None:
    view = loading.numpy_view()
    names = set(numpy_names(package))
    assert "float32" in names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [name for name in sorted(names) if not hasattr(view, name)] == []


def test_the_view_is_numpy_except_for_the_table() -> None:
    import mxnet

    view = mxnet.ndarray.ndarray.np
    assert (view is np) is False
    assert view.ndarray is np.ndarray
    assert view.dtype is np.dtype
    assert view.random is np.random
    assert view.testing is np.testing
    different = {name for name in vars(np) if getattr(view, name) is not vars(np)[name]}
    assert different <= {"__name__", "__doc__", "bool"}
    assert isinstance(mxnet.nd.ones(2).asnumpy(), np.ndarray)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = view.nothing


def test_only_mxnet_and_gluoncv_are_loaded_with_the_hook() -> None:
    import mxnet

    assert isinstance(mxnet.__spec__.loader, loading.SourceLoader)
    loaded = {
        name.partition(".")[0]
        for name, module in list(sys.modules.items())
        if getattr(module, "__builtins__", None) is loading.own_builtins()
    }
    assert loaded <= set(loading.PACKAGES)
    assert "mxnet" in loaded


def test_gluoncv_loads_beside_an_unsupported_pytorch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.6.0'")
    said = run_program(
        "import layers.compute, gluoncv, sys; print('torch' in sys.modules);"
        "import torch; print(torch.__version__)",
        folder=tmp_path,
    )
    assert said.split() == ["False", "2.6.0"]


def test_the_first_compilation_of_mxnet_does_not_warn() -> None:
    code = "import warnings; warnings.simplefilter('error', SyntaxWarning); import layers.compute;"
    loader = "from layers.compute.engines.mxnet.loading import SourceLoader;"
    compiles = r"SourceLoader('mxnet.x', 'x.py').source_to_code(b'\"\\d\"', 'x.py')"
    run_program(code + loader + compiles)


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("Python", "3.9.18", "use Python 3.10 to 3.13"),
        ("Python", "3.14.0", "use Python 3.10 to 3.13"),
        ("numpy", "1.20.3", "pip install 'numpy>=1.21,<3'"),
        ("numpy", "3.0.0", "pip install 'numpy>=1.21,<3'"),
        ("mxnet", "1.9.0", "pip install --no-deps mxnet==1.9.1"),
        ("mxnet", "2.0.0b1", "pip install --no-deps mxnet==1.9.1"),
        ("gluoncv", "0.10.4.post4", "pip install gluoncv==0.10.5.post0"),
        ("gluoncv", "unknown", "pip install gluoncv==0.10.5.post0"),
    ],
)
def test_an_unknown_version_is_told_what_to_install(name: str, version: str, says: str) -> None:
    with pytest.raises(UnsupportedVersion) as raised:
        check_version(name, version)
    assert str(raised.value) == f"{name} {version} is not known to work with MXNet 1.9.1; {says}"
    assert isinstance(raised.value, ImportError)


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("Python", ["3.10.0", "3.10.13", "3.11.7", "3.12.1", "3.13.0", "3.13.9"]),
        ("numpy", ["1.21.0", "1.23.5", "1.26.4", "2.0.0rc1", "2.5.5"]),
        ("mxnet", ["1.9.1", "1.9.1.post0"]),
        ("gluoncv", ["0.10.5", "0.10.5.post0"]),
    ],
)
def test_known_versions_are_accepted(name: str, versions: list[str]) -> None:
    for version in versions:
        check_version(name, version)
    assert set(KNOWN) == {"Python", "numpy", "mxnet", "gluoncv"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("import numpy; numpy.__version__ = '3.0.0'", "numpy 3.0.0"),
        ("import sys; sys.version_info = (3, 9, 18)", "Python 3.9.18"),
    ],
)
def test_importing_mxnet_with_an_unknown_version_is_refused(change: str, said: str) -> None:
    done = run_program(
        f"import layers.compute\n{change}\n"
        "try: import mxnet\nexcept ImportError as error: print(error)"
    )
    assert done.startswith(f"{said} is not known to work")


@pytest.mark.parametrize("package", loading.PACKAGES)
@pytest.mark.parametrize("installed", ["1.9.0", None])
def test_only_a_packages_own_module_is_loaded_with_a_check_of_its_version(
    package: str, installed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name != package or installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    def load(name: str) -> str:
        module = ModuleType(name)
        SourceLoader(name, str(path)).exec_module(module)
        return str(module.shown)

    monkeypatch.setattr(metadata, "version", version)
    path = tmp_path / "module.py"
    # Neither what it does nor how it is written may warn, whatever the user does with warnings.
    path.write_text(r'"""\d"""' + "\nimport warnings\nwarnings.warn('old')\nshown = __name__\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(f"{package}.part") == f"{package}.part"
        if installed is None:  # another build of it, or a checkout
            monkeypatch.setattr(loading, "start_quietly", lambda module: None)
            assert load(package) == package
            return
        with pytest.raises(UnsupportedVersion, match=rf"^{package} 1\.9\.0 is not known to work"):
            load(package)


def test_the_stand_in_for_distutils_orders_versions() -> None:
    assert LooseVersion("1.17") < LooseVersion("1.23.5") <= LooseVersion("2.0.0")
    assert LooseVersion("1.9.1") >= "1.4.0"
    assert StrictVersion("1.6.0") == StrictVersion("1.6.0")
    assert str(LooseVersion("1.9.1")) == "1.9.1"


LATER = ("sklearn", "pandas", "cv2", "requests", "scipy.stats", "scipy.sparse")


def run(code: str) -> str:
    return run_program(f"import layers.compute, sys\n{code}").strip()


USES = {
    "mx.nd.sparse.zeros('csr', (2, 3)).asscipy().shape": "(2, 3)",
    "mx.image.image.cv2.INTER_AREA": "3",
    "__import__('scipy.stats').stats.norm.cdf(0)": "0.5",
    "mx.contrib.quantization.stats.norm.cdf(0)": "0.5",
    "__import__('sklearn.base').base.BaseEstimator.__name__": "BaseEstimator",
    "mx.gluon.utils.requests.codes.ok": "200",
}
EACH_ALONE = f"""
import gc, os
import mxnet as mx
print([name for name in {LATER} if name in sys.modules], gc.isenabled(), flush=True)
for use in {list(USES)}:
    if os.fork() == 0:
        print(eval(use), flush=True)
        os._exit(0)
    os.wait()
"""


def test_only_what_training_needs_is_imported_and_another_module_when_it_is_used() -> None:
    assert run(EACH_ALONE).splitlines() == ["[] True", *USES.values()]


def test_packages_that_were_imported_before_do_not_change() -> None:
    code = "import requests, scipy.stats\nimport mxnet as mx\n"
    code += "print(sys.modules['requests'] is requests, mx.gluon.utils.requests is requests)"
    assert run(code) == "True True"


OPERATORS = """
import threading
from layers.compute.engines.mxnet import engine
from layers.compute.engines.mxnet.operators import UNWRITTEN, _write_and_call
import mxnet as mx
from mxnet.ndarray.register import _make_ndarray_function
from mxnet.symbol.register import _make_symbol_function
from mxnet.base import OpHandle, _LIB, c_str, check_call
import ctypes
modules = (mx.nd.op, mx.nd._internal, mx.sym.op, mx.sym._internal, mx.np._op, mx.npx._op)
found = [one for module in modules for one in map(vars(module).get, module.__all__)]
found = [one for one in found if hasattr(one, "__code__")]
written = [one.__name__ for one in found if one.__code__ is not _write_and_call.__code__]
print(len(found), len(written))
def of_mxnet(make, name):
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(handle)))
    return make(handle, name, name)
for space, make in ((mx.nd, _make_ndarray_function), (mx.sym, _make_symbol_function)):
    for name in ("dot", "Concat", "FullyConnected", "broadcast_add", "clip"):
        one, other = getattr(space, name), of_mxnet(make, name)
        assert one.__doc__ == UNWRITTEN or name in written
        try: one("no array")
        except (AssertionError, TypeError, AttributeError): pass
        assert one.__code__.co_code == other.__code__.co_code, name
        assert (one.__defaults__, one.__doc__) == (other.__defaults__, other.__doc__), name
values, x = [], mx.nd.array([1, 4])
begin = threading.Barrier(8)
def call():
    begin.wait()
    values.append(mx.nd.cbrt(mx.nd.rsqrt(x)).asnumpy().tolist())
threads = [threading.Thread(target=call) for _ in range(8)]
[one.start() for one in threads]; [one.join() for one in threads]
assert len(values) == 8 and len(set(map(tuple, values))) == 1, values
"""


def test_mxnet_writes_an_operator_when_it_is_first_called_and_as_it_always_did() -> None:
    found, written = map(int, run_program(OPERATORS).split())
    assert found > 1000
    assert written < 30
