"""The methods of a part: a misspelt one, one of another part, or one with other parameters."""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from layers.logic.checks.code_place import at_place
from layers.logic.core.aggregator import Aggregator
from layers.logic.core.hook import ClientSide, Hook, ServerSide
from layers.logic.core.selector import Selector
from layers.logic.core.trainer import Trainer
from layers.logic.errors import LogicError

KINDS: Mapping[type, str] = {
    Hook: "hook",
    ServerSide: "server side",
    ClientSide: "client side",
    Selector: "selector",
    Aggregator: "aggregator",
    Trainer: "trainer",
}
"""What each class is called from which a part is derived."""

FIELDS = "__dataclass_fields__"
NEAR = 0.75  # of 1: how alike a misspelt name is to the one that was meant


def check_methods(part: type, root: type) -> None:
    """Check a part's public methods against those of the class that it is derived from.

    Args:
        part: the class of the part.
        root: the class of the framework, such as a key of `KINDS`.

    Raises:
        LogicError: a method's name is nearly one of the framework's and nothing uses it, it is a
            method of another kind of part, or it cannot be called as the framework does.
    """
    theirs = _methods(root)
    for name, own in _own_methods(part, root):
        full = f"{part.__name__}.{name}"
        if name in theirs:
            _check_parameters(full, own, theirs[name])
        elif not _used(part, name):
            near = difflib.get_close_matches(name, theirs, 1, NEAR) or [
                known for known in theirs if _flat(known) == _flat(name)
            ]
            if near:
                raise LogicError(
                    f"{full} is not {_word(root)} method; did you mean {near[0]!r}?"
                    f"{at_place(_function(own))}"
                )
            kinds = [kind for kind in KINDS if name in _methods(kind)]
            others = [KINDS[kind] for kind in kinds]
            if others and not issubclass(part, tuple(kinds)):
                raise LogicError(
                    f"{full} is a method of {' or '.join(map(_a, others))}, and {part.__name__} is "
                    f"{_a(_kind(root))}: nobody calls it; move it{at_place(_function(own))}"
                )
    _check_attributes(part, root)


def _check_attributes(part: type, root: type) -> None:
    """Check that no plain attribute of a part has nearly the name of one of the framework's.

    Raises:
        LogicError: one has, and nothing uses it.
    """
    theirs = [name for name, value in _methods(root).items() if not callable(value)]
    for name, holder, own in _own_names(part, root):
        if name in theirs or not _is_plain(own) or name in getattr(part, FIELDS, {}):
            continue
        near = difflib.get_close_matches(name, theirs, 1, NEAR)
        if near and not _used(part, name):
            raise LogicError(
                f"{part.__name__}.{name} is not {_word(root)} attribute; did you mean {near[0]!r}?"
                f"{at_place(holder)}"
            )


def unknown_methods(part: type, root: type) -> Iterator[str]:
    """Yield a line for each public method that neither the framework nor its own module uses."""
    theirs = {name for kind in KINDS for name in dir(kind)} | set(dir(root))
    for name, own in _own_methods(part, root):
        if name not in theirs and not _used(part, name):
            yield (
                f"{part.__name__}.{name} is no method of {_a(KINDS[root])}, and nothing in its "
                f"file uses it: it has no effect{at_place(_function(own))}"
            )


def _own_methods(part: type, root: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that a part has from its own classes, not from the framework."""
    for name, _, own in _own_names(part, root):
        if _is_method(own):
            yield name, own


def _own_names(part: type, root: type) -> Iterator[tuple[str, type, Any]]:
    """Yield each public name that a part has from its own classes, its class and its value."""
    for name in dir(part):
        holder = next((one for one in part.__mro__ if name in vars(one)), object)
        if not (name.startswith("_") or holder in root.__mro__ or _is_ours(holder)):
            yield name, holder, inspect.getattr_static(part, name)


def _check_parameters(full: str, own: Any, theirs: Any) -> None:
    """Check that a method takes the arguments that the framework calls it with.

    Raises:
        LogicError: it does not.
    """
    function = _function(own)
    if not callable(theirs):
        raise LogicError(
            f"{full} is a method, which counts as true whatever it returns; write @property above "
            f"it{at_place(function)}"
        )
    wanted = [one for one in inspect.signature(theirs).parameters if one != "self"]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # code written in C may have no signature
        return
    before = [] if isinstance(own, staticmethod) else ["self"]
    try:
        signature.bind(*before, *wanted)
    except TypeError:
        name = full.rpartition(".")[2]
        raise LogicError(
            f"{full} takes {signature}, and is called with ({', '.join(wanted)}); write "
            f"def {name}({', '.join(['self', *wanted])}){at_place(function)}"
        ) from None
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise LogicError(
            f"{full} is a coroutine or a generator, of which a call runs nothing; write a plain "
            f"function without async and yield{at_place(function)}"
        )


@cache
def _methods(root: type) -> Mapping[str, Any]:
    """Return the public methods and properties of one of the framework's classes, by name."""
    return {
        name: inspect.getattr_static(root, name) for name in dir(root) if not name.startswith("_")
    }


def _is_plain(value: Any) -> bool:
    """Return whether a class's attribute is a value, and no method, property or class."""
    return not (callable(value) or hasattr(value, "__get__"))


def _is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, staticmethod | classmethod)


def _is_ours(holder: type) -> bool:
    """Return whether a class is the framework's own."""
    return holder.__module__.partition(".")[0] in ("layers", "fedmx") or holder is object


def _function(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def _used(part: type, name: str) -> bool:
    """Return whether the source of a part's classes, or of their modules, uses an attribute."""
    return any(name in attributes_read(one) for one in part.__mro__ if not _is_ours(one))


@lru_cache(maxsize=100)
def attributes_read(part: type | ModuleType) -> frozenset[str]:
    """Return the names after a dot, and all texts, in a module, or in that of a class.

    A text counts since `getattr` may be given it. Empty if the source is not known.
    """
    tree = module_tree(part)
    if tree is None:
        return frozenset()
    read = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            read.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            read.add(node.value)
        elif isinstance(node, ast.MatchClass):
            read.update(node.kwd_attrs)
    return frozenset(read)


@lru_cache(maxsize=20)
def module_tree(part: type | ModuleType) -> ast.Module | None:
    """Return the syntax tree of a module, or of that of a class; None if it is not known."""
    try:
        file = inspect.getsourcefile(part)
        lines = inspect.findsource(part)[0] if file else []
        return ast.parse("".join(lines)) if lines else None
    except (OSError, TypeError, SyntaxError):
        return None


def _flat(name: str) -> str:
    return name.replace("_", "").lower()


def _kind(root: type) -> str:
    return KINDS.get(root, root.__name__.lower())


def _word(root: type) -> str:
    """Return the words before "method" in messages; the sides of hook have hook methods."""
    return _a("hook" if root in (ServerSide, ClientSide) else _kind(root))


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
