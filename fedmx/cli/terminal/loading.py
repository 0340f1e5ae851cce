"""Says on a terminal which package is being loaded, so that no command is silent meanwhile."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

SLOW = {
    "numpy": "numpy",
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "mxnet": "MXNet",
    "gluoncv": "gluoncv",
    "onnx": "ONNX",
    "ray": "Ray",
}
"""The packages whose import can take half a second or more, and what they are called."""

_ERASE = "\r\033[K"


def show_loading() -> None:
    """From now on, show on a terminal that one of the slow packages is being imported.

    The line is there until the import has ended. Other outputs than a terminal get no such line.
    """
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        sys.meta_path.insert(0, _Watcher())


class _Watcher:
    """A finder that finds nothing itself: it shows what others find."""

    def __init__(self) -> None:
        self._stderr = sys.stderr
        self._shown: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a slow package is loaded, with the line shown meanwhile; None for others."""
        if fullname not in SLOW or threading.current_thread() is not threading.main_thread():
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            self._wrap(spec, SLOW[fullname])
        return spec

    def _wrap(self, spec: ModuleSpec, name: str) -> None:
        """Let a package's loader show the line while it works."""
        loader = spec.loader
        assert loader is not None
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            self._shown.append(name)
            self._draw()
            try:
                load(module)
            finally:
                self._shown.pop()
                self._draw()

        loader.exec_module = exec_module  # type: ignore[method-assign]

    def _draw(self) -> None:
        """Show the package whose import began first, or erase the line.

        A progress line that is under way has put something else in the place of stderr.
        """
        from fedmx.cli.terminal.json_lines import is_json

        if sys.stderr is self._stderr and not is_json():
            line = f"loading {self._shown[0]} ..." if self._shown else ""
            sys.stderr.write(f"{_ERASE}{line}")
            sys.stderr.flush()
