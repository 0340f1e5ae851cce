"""MXNet's operators as functions that are written when they are first called.

MXNet has some 1,200 operators, and at its import writes and compiles a Python function for each of
them twice, for arrays and for symbols. A model calls 20.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

MAKERS = ("_init_op_module", "_init_np_op_module")
"""The functions of `mxnet.base` that fill a module with operators; a maker is their last argument.
"""

UNWRITTEN = "An operator of MXNet, whose signature and documentation its first call writes."

Make = Callable[[Any, str, str], FunctionType]
"""Writes the function of an operator: takes its handle, its name in MXNet, and its name here."""


def write_when_called(base: ModuleType) -> None:
    """Let MXNet fill its modules with operators that are not yet written.

    Args:
        base: `mxnet.base`, before any other module imports it.
    """
    for name in MAKERS:
        setattr(base, name, _filling(getattr(base, name)))


def _filling(fill: Callable[..., None]) -> Callable[..., None]:
    def fill_unwritten(*names: Any, make_op_func: Make | None = None, **named: Any) -> None:
        if make_op_func is None:
            *names, make_op_func = names  # type: ignore[assignment]
        make = make_op_func

        def unwritten(handle: Any, operator: str, name: str) -> FunctionType:
            return _unwritten(lambda: make(handle, operator, name), name, make)

        fill(*names, make_op_func=unwritten, **named)

    return fill_unwritten


def _write_and_call(*arguments: Any, _write: Callable[[], FunctionType], **named: Any) -> Any:
    """Stand for an operator: write it, and call it."""
    return _write()(*arguments, **named)


def _unwritten(make: Callable[[], FunctionType], name: str, maker: Any) -> FunctionType:
    """Return a function that becomes the operator's at its first call, for all who have it."""

    def write() -> FunctionType:
        written = make()
        # In this order a call in another thread finds either function, and never half of one.
        stub.__defaults__ = written.__defaults__
        stub.__code__ = written.__code__
        stub.__kwdefaults__ = None
        if stub.__doc__ == UNWRITTEN:
            stub.__doc__ = written.__doc__
        return stub

    code, globals = _write_and_call.__code__, maker.__globals__
    stub = FunctionType(code, globals, name)
    stub.__kwdefaults__ = {"_write": write}
    stub.__doc__ = UNWRITTEN
    return stub
