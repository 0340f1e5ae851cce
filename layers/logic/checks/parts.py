"""The check of all parts of a logic, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from layers.logic.checks.code_place import at_place
from layers.logic.checks.methods import KINDS, check_methods, unknown_methods
from layers.logic.checks.settings import check_settings, unread_settings
from layers.logic.core.hook import ClientSide, Hook, ServerSide
from layers.logic.errors import LogicError


def check_kind(kind: str, value: Any, root: type) -> None:
    """Check that a part is an object of its kind.

    Raises:
        LogicError: it is something else; the message says what to write.
    """
    if isinstance(value, root):
        return
    name = getattr(value, "__name__", None) or type(value).__name__
    if isinstance(value, type) and issubclass(value, root):
        raise LogicError(f"{name} is no {kind} but a class; make an object of it: {name}()")
    text = f"an object of {name}" if " object at 0x" in repr(value) else repr(value)
    own = value if isinstance(value, type) else type(value)
    written = f", class {name}({root.__name__})" if own.__module__ != "builtins" else ""
    raise LogicError(
        f"{text} is no {kind}; it must be an instance of a class derived from "
        f"fedmx.{root.__name__}{written}{at_place(own)}"
    )


def check_part(part: Any) -> None:
    """Check the methods and the settings of a part, and the sides of hook.

    Raises:
        LogicError: something is wrong; the message says what and where.
    """
    root = _root(part)
    check_methods(type(part), root)
    check_settings(type(part), root)
    if isinstance(part, Hook):
        for half, kind in _halves(part):
            if not isinstance(half, kind):
                method = "server" if kind is ServerSide else "client"
                name = type(part).__name__
                raise LogicError(
                    f"{name}.{method}() returned {_shown(half)}; it must return an object of a "
                    f"class derived from {kind.__name__}{at_place(getattr(type(part), method))}"
                )
            check_methods(type(half), kind)


def doubts(parts: Iterable[Any]) -> Iterator[str]:
    """Yield a line for each thing about the parts that may be a mistake, and may be none."""
    for part in parts:
        kind, root = type(part), _root(part)
        yield from unknown_methods(kind, root)
        yield from unread_settings(kind, root)
        if isinstance(part, Hook):
            for half, of in _halves(part):
                yield from unknown_methods(type(half), of)


def _halves(hook: Hook) -> Iterator[tuple[Any, type]]:
    """Yield the sides of hook, each with the class that it must be derived from.

    Raises:
        LogicError: the hook cannot make one.
    """
    for make, kind in ((hook.server, ServerSide), (hook.client, ClientSide)):
        try:
            yield make(), kind
        except LogicError:
            raise
        except Exception as error:
            name = f"{type(hook).__name__}.{make.__name__}"
            what = f"{type(error).__name__}: {error}"
            raise LogicError(f"{name}() failed: {what}{at_place(make)}") from error


def _root(part: Any) -> type:
    return next(kind for kind in KINDS if isinstance(part, kind))


def _shown(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
