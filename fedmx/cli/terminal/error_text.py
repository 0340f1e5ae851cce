"""The one line that an error shows to the user."""

from __future__ import annotations

import sys


def error_text(error: BaseException) -> str | None:
    """Return an error's text for the user, or None if only a traceback can help.

    No layer is imported here: only a loaded module can have raised the error.
    """
    text = printable(str(error).strip() or type(error).__name__)
    if _is_instance(error, "fedmx.errors", "FedmxError"):
        return text  # a line for each problem of an experiment
    in_part = any(
        _is_instance(error, "layers.logic.errors", name) for name in ("ClientFailed", "PartFailed")
    )
    if in_part and error.__cause__ is not None:
        from fedmx.components.user_code import place_of

        cause = error.__cause__
        # A worker process has found the place already.
        place = getattr(cause, "place", None) or place_of(cause)
        return f"{_first_line(text)}{f' ({place})' if place else ''}; --debug shows the traceback"
    for layer in ("network", "logic", "compute"):
        if _is_instance(error, f"layers.{layer}.errors", f"{layer.capitalize()}Error"):
            return _first_line(text)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return not_installed(error.name.partition(".")[0])
    if isinstance(error, OSError):
        if error.filename is None or error.strerror is None:
            return _first_line(text)
        return f"{printable(str(error.filename))}: {error.strerror}; --debug shows where"
    if isinstance(error, MemoryError):
        return "there is not enough memory; use a smaller model, batch or data set"
    return None


def not_installed(package: str) -> str:
    """Return what to do about a package that fedmx needs and that is missing."""
    if package == "mxnet":  # pip does not install it beside numpy 2, though it works there
        todo = "pip install --no-deps mxnet==1.9.1"
    else:
        todo = "install fedmx with pip, or `make venv`"
    return f"the package {package} is not installed; {todo}"


def printable(text: str) -> str:
    """Return a text without the characters that control a terminal."""
    return "".join(one if one.isprintable() or one == "\n" else "�" for one in text)


def one_line(text: str) -> str:
    """Return a text as one line: a line break becomes a space."""
    return printable(" ".join(text.splitlines()))


def _is_instance(error: BaseException, module: str, name: str) -> bool:
    """Return whether an error is of a class whose module may not be loaded."""
    root = getattr(sys.modules.get(module), name, None)
    return root is not None and isinstance(error, root)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else text
