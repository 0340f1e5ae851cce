"""`import fedmx` gives every name that experiments and components are written with."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import fedmx
import layers.logic

ROOT = Path(__file__).resolve().parents[2]
STUB = ast.parse((ROOT / "fedmx" / "__init__.pyi").read_text())
IMPORTS = [node for node in STUB.body if isinstance(node, ast.ImportFrom)]
MODULES = {alias.name: str(node.module) for node in IMPORTS for alias in node.names}
WRITTEN_WITH = {
    "hooks": "Hook ServerSide ClientSide Context ServerContext ClientContext Task Update Training "
    "GradientTerm Stage Asset Rejected",
    "checks": "Logic Parts LogicError",
    "codecs": "Codec CodecHook",
    "selectors": "Selector OpenRound Run Offer Verdict Question ClientReport",
    "aggregators": "Aggregator Contribution AGGREGATE BufferMean BufferMedian ServerState",
    "training": "Trainer Job LocalSgd LocalTensors Optimiser",
    "presets": "Preset settings_of_parts",
    "models": "build_model",
    "metrics": "Metric",
    "data": "Dataset Raw Files Partition",
    "ends": "Server Client RemoteClients Listener Connector MessageCodec CODEC ServerTLS ClientTLS "
    "Logic Compute Samples MXNetEngine NumpyEngine",
    "clocks": "Devices Fleet Availability Presence Uploads Channel Schedule",
}


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("kind", sorted(WRITTEN_WITH))
def test_the_names_to_write_a_component_are_there(kind: str) -> None:
    assert [name for name in WRITTEN_WITH[kind].split() if name not in MODULES] == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_name_is_the_object_of_its_module(name: str) -> None:
    assert getattr(fedmx, name) is getattr(importlib.import_module(MODULES[name]), name)
    if hasattr(layers.logic, name):
        assert getattr(fedmx, name) is getattr(layers.logic, name)


def test_dir_and_all_list_the_names_of_the_stub() -> None:
    assert set(MODULES) <= set(dir(fedmx))
    assert sorted(MODULES) == fedmx.__all__


def test_the_stub_exports_each_name_to_type_checkers() -> None:
    assert [node for node in STUB.body[1:] if not isinstance(node, ast.ImportFrom)] == []
    aliases = [alias for node in IMPORTS for alias in node.names]
    assert [alias.name for alias in aliases if alias.asname != alias.name] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fedmx' has no attribute 'Nothing'"):
        _ = fedmx.Nothing


def test_importing_fedmx_loads_only_the_loader_of_mxnet(tmp_path: Path) -> None:
    loaded = run_python("import sys, fedmx; print(*sys.modules)", tmp_path).stdout.split()
    assert not {"mxnet", "numpy"} & {*loaded}
    loaded = [name for name in loaded if name.startswith("layers.")]
    compute = "layers.compute"
    packages = {compute, f"{compute}.errors", f"{compute}.engines", f"{compute}.engines.mxnet"}
    packages |= {f"{compute}.engines.one_thread"}
    for name in ("runtime", "loading", "operators"):
        packages.add(f"{compute}.engines.mxnet.{name}")
    assert {name for name in loaded if ".loading." not in name} == packages


@pytest.mark.parametrize("hiding", ["layers.py", "layers"])
@pytest.mark.parametrize("code", ["import fedmx", "import layers, fedmx"])
def test_a_users_own_layers_is_named_by_the_import(tmp_path: Path, hiding: str, code: str) -> None:
    path = tmp_path / hiding
    if path.suffix:
        path.write_text("")
    else:
        path.mkdir()
        (path / "__init__.py").write_text("")
    done = run_python(code, tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[-1]
        == f"ImportError: {path} hides fedmx's own package 'layers'; rename {hiding}"
    )
