"""The walls of the house: which part may import what, and what nothing may import or call."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("network", "logic", "compute")
FRONT_AND_LAYERS = ("fedmx", "layers")

SOCKETS = {"socket", "ssl", "asyncio", "selectors", "socketserver"}
TRAINING = {"mxnet", "gluoncv", "torch"}
# What a part may not import, besides the other layers and the front.
FORBIDDEN = {
    "fedmx": TRAINING,
    "layers/network": TRAINING,
    "layers/logic": TRAINING | SOCKETS | {"http", "urllib", "requests"},
    "layers/compute": SOCKETS,
}
CODE_FROM_DATA = {
    "pickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "jsonpickle",
    "marshal",
    "shelve",
    "joblib",
}


def python_files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def imported(path: Path, root: Path = ROOT) -> list[tuple[str, int]]:
    """Every module that the file imports, anywhere in it, by its absolute name, and the line."""
    package = path.relative_to(root).parent.parts
    found = []
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        match node:
            case ast.Import():
                found += [(alias.name, node.lineno) for alias in node.names]
            case ast.ImportFrom():
                start = package[: len(package) - node.level + 1] if node.level else ()
                origin = ".".join([*start, *([node.module] if node.module else [])])
                found.append((origin, node.lineno))
                found += [(f"{origin}.{alias.name}", node.lineno) for alias in node.names]
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if called(node) in {
                "import_module",
                "__import__",
            }:
                found.append((name, node.lineno))
    return found


def called(node: ast.Call) -> str:
    """The last name of what is called: `load` of `np.load(...)`."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def offences(folder: str, packages: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in python_files(folder)
        for module, line in imported(path)
        if any(within(module, package) for package in packages)
    ]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_nothing_of_its_neighbours_nor_of_the_front(layer: str) -> None:
    others = {f"layers.{other}" for other in LAYERS if other != layer}
    assert python_files(f"layers/{layer}"), "no file found: the test would hold nothing"
    assert offences(f"layers/{layer}", others | {"fedmx"}) == []


def test_the_layers_common_ground_imports_little() -> None:
    ground = [path for path in (ROOT / "layers").glob("*.py") if path.name != "__init__.py"]
    assert sorted(path.name for path in ground) == ["arithmetic.py", "extras.py", "settings.py"]
    names = {name.partition(".")[0] for path in ground for name, _ in imported(path)}
    assert names - sys.stdlib_module_names == {"annotated_types", "numpy"}


@pytest.mark.parametrize("part", sorted(FORBIDDEN))
def test_mxnet_and_sockets_live_in_one_layer_each(part: str) -> None:
    assert offences(part, FORBIDDEN[part]) == []


def test_nothing_imports_a_module_that_makes_code_of_data() -> None:
    assert [o for part in FRONT_AND_LAYERS for o in offences(part, CODE_FROM_DATA)] == []


def test_nothing_evaluates_text_or_loads_pickled_arrays() -> None:
    found = []
    for path in python_files(*FRONT_AND_LAYERS):
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            if not isinstance(node, ast.Call):
                continue
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec", "compile"}:
                found.append(f"{where} calls {node.func.id}")
            found += [
                f"{where} allows pickles"
                for keyword in node.keywords
                if keyword.arg == "allow_pickle"
                and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
            ]
            if called(node) in {"unsafe_load", "full_load", "unsafe_load_all", "full_load_all"}:
                found.append(f"{where} calls yaml.{called(node)}")
    assert found == []


def test_the_reader_of_imports_sees_every_way_to_import(tmp_path: Path) -> None:
    source = tmp_path / "layers" / "logic" / "hooks" / "x.py"
    source.parent.mkdir(parents=True)
    source.write_text(
        "import a.b as c\n"
        "from .. import round\n"
        "from ...network.wire import Frame\n"
        "def later():\n"
        "    from layers import compute\n"
        "    import importlib\n"
        "    importlib.import_module('fedmx.cli')\n"
    )
    names = {name for name, _ in imported(source, root=tmp_path)}
    assert {
        "a.b",
        "layers.logic.round",
        "layers.network.wire.Frame",
        "layers.compute",
        "fedmx.cli",
    } <= names


LOAD_ALONE = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"{{name}} is absent on purpose", name=name)

sys.meta_path.insert(0, Absent())
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if module.name.endswith("__main__") or ".engines.torch" in module.name:
        continue  # PyTorch is an extra
    importlib.import_module(module.name)
print("\\n".join(sys.modules))
"""


def modules_after_loading(package: str, absent: set[str]) -> set[str]:
    """What is loaded after every module of `package` was, in a process where `absent` cannot be."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ALONE.format(package=package, absent=sorted(absent))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("layer", "absent"),
    [
        ("logic", {"mxnet", "gluoncv", "torch", "msgpack", "fedmx"}),
        ("network", {"mxnet", "gluoncv", "sklearn", "scipy", "fedmx"}),
        ("compute", {"msgpack", "cryptography", "fedmx"}),
    ],
)
def test_a_layer_loads_where_the_others_and_their_packages_are_missing(
    layer: str, absent: set[str]
) -> None:
    loaded = modules_after_loading(f"layers.{layer}", absent)
    assert f"layers.{layer}" in loaded
    others = {f"layers.{other}" for other in LAYERS if other != layer}
    assert not {name for name in loaded if any(within(name, other) for other in others)}
