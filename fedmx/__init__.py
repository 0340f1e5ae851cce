"""fedmx: federated learning for MXNet/Gluon, from an idea to machines connected over TLS.

``__init__.pyi`` lists the public names with their modules. Each is imported when it is first used,
so that ``fedmx --help`` does not wait for MXNet.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

from fedmx.layers_check import check_layers

if check_layers():
    # From here on `import mxnet` works on every Python and numpy that fedmx runs on.
    importlib.import_module("layers.compute")

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_bytes())
_MODULES = {
    alias.name: str(node.module)
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'fedmx' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, which a notebook completes."""
    return list(__all__)
