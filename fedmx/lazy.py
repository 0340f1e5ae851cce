"""Modules whose names are imported when they are first used; their stubs (.pyi) list the names."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def names_of(file: str) -> dict[str, str]:
    """Return the module of each name in the stub beside a module's file.

    The stub has lines of the form ``from MODULE import NAME as NAME``.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_bytes())
    return {
        alias.name: str(node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def importer(names: dict[str, str], module: dict[str, Any]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module.

    Args:
        names: from `names_of`.
        module: the module's globals, which keep each imported name.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        value = module[name] = getattr(importlib.import_module(names[name]), name)
        return value

    return get
