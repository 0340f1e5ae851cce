"""The check of all parts of a logic, before anything runs."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from layers.logic.core.aggregator import Aggregator
from layers.logic.core.attack import Attack, Collusion
from layers.logic.core.declaration import Need, Part, Trait, with_inner
from layers.logic.core.hook import ClientSide, Hook, ServerSide
from layers.logic.core.selector import Selector
from layers.logic.core.trainer import Trainer
from layers.logic.errors import LogicError


def check_kind(kind: str, value: Any, root: type) -> None:
    """Check that a part is an object of its kind.

    Raises:
        LogicError: it is something else; the message names the right form.
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
    """Check the methods and the settings of a part, and the sides of a hook.

    Raises:
        LogicError: something is wrong; the message says what and where.
    """
    for one in with_inner(part):
        _check_alone(one)


def _check_alone(part: Any) -> None:
    """Check a part without those in its settings."""
    root = _root(part)
    check_methods(type(part), root)
    check_settings(type(part), root)
    if isinstance(part, Part):
        _check_declarations(part)
    if isinstance(part, Hook):
        for side, kind in _sides(part):
            if not isinstance(side, kind):
                method = "server" if kind is ServerSide else "client"
                name = type(part).__name__
                raise LogicError(
                    f"{name}.{method}() returned {_shown(side)}; it must return an object of a "
                    f"class derived from {kind.__name__}{at_place(getattr(type(part), method))}"
                )
            check_methods(type(side), kind)


def _check_declarations(part: Part) -> None:
    """Check that a part declares needs and traits, each in its place.

    Raises:
        LogicError: it does not.
    """
    for name, kind in (("requires", Need), ("provides", Trait)):
        value = getattr(part, name)
        if not isinstance(value, Set) or not all(isinstance(one, kind) for one in value):
            raise LogicError(
                f"{type(part).__name__}.{name} must be a set of fedmx.{kind.__name__}, not {value}"
            )


def possible_mistakes(parts: Iterable[Any]) -> Iterator[str]:
    """Yield a line for each peculiarity of the parts that may be a mistake."""
    for part in (inner for one in parts for inner in with_inner(one)):
        kind, root = type(part), _root(part)
        yield from unknown_methods(kind, root)
        yield from unread_settings(kind, root)
        if isinstance(part, Hook):
            for side, of in _sides(part):
                yield from unknown_methods(type(side), of)


def _sides(hook: Hook) -> Iterator[tuple[Any, type]]:
    """Yield the sides of a hook, each with the class that it must be derived from.

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


def place_of_code(code: Callable[..., Any] | type) -> str:
    """Return ``FILE:LINE`` of a function, method or class; empty if its source is not known."""
    if not inspect.isclass(code):
        plain = getattr(inspect.unwrap(code), "__code__", None)
        return f"{plain.co_filename}:{plain.co_firstlineno}" if plain is not None else ""
    try:
        return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"
    except (OSError, TypeError):
        return ""


def at_place(code: Callable[..., Any] | type) -> str:
    """Return `place_of_code` in brackets after a space; empty if it is not known."""
    place = place_of_code(code)
    return f" ({place})" if place else ""


KINDS: Mapping[type, str] = {
    Collusion: "collusion",
    Attack: "attack",
    Hook: "hook",
    ServerSide: "server side",
    ClientSide: "client side",
    Selector: "selector",
    Aggregator: "aggregator",
    Trainer: "trainer",
}
"""The name of each base class of parts, in messages."""

FIELDS = "__dataclass_fields__"
NEAR = 0.75  # similarity, up to 1, of a misspelt name and the intended one


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
                    f"{_a(_kind(root))}: fedmx never calls it; move it{at_place(_function(own))}"
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
    """Check that a method takes the arguments of the framework's call.

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
            f"{full} is a coroutine or a generator, so a call runs nothing; write a plain "
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
    """Return the words before "method" in messages; the sides of a hook have hook methods."""
    return _a("hook" if root in (ServerSide, ClientSide) else _kind(root))


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


_WHOLE = ("asdict", "astuple", "vars", "getattr")
"""Functions that read the fields of an object without naming them."""


def check_settings(part: type, root: type) -> None:
    """Check that a part's settings are fields of a frozen dataclass, and that its code reads them.

    Args:
        part: the class of the part.
        root: the class of the framework that it is derived from.

    Raises:
        LogicError: they are not, or it certainly does not.
    """
    name, own = part.__name__, _own_classes(part, root)
    for one in own:
        declared = [] if dataclasses.is_dataclass(one) and _is_made(one) else _declared(one, root)
        if declared:
            raise LogicError(
                f"{one.__name__} has the settings {', '.join(declared)}, and is no dataclass; "
                f"write @dataclass(frozen=True) above its class{at_place(one)}"
            )
        made_by_hand = [key for key in _parameters(one) if key]
        if not dataclasses.is_dataclass(one) and made_by_hand:
            raise LogicError(
                f"{one.__name__} takes {', '.join(made_by_hand)} in an __init__ of its own, so "
                "that no file and no report can say its settings; make them the fields of a "
                f"@dataclass(frozen=True){at_place(one)}"
            )
    if dataclasses.is_dataclass(part) and not _is_frozen(part):
        raise LogicError(
            f"{name} is a dataclass whose settings can change in a run; write "
            f"@dataclass(frozen=True) above its class{at_place(part)}"
        )
    for field, certain in unread(part, root):
        if certain:
            raise LogicError(f"{name} has the setting {field}, {_UNREAD}{at_place(part)}")


def unread_settings(part: type, root: type) -> Iterator[str]:
    """Yield a line for each setting that none of a part's code seems to read."""
    for field, certain in unread(part, root):
        if not certain:
            yield (
                f"{part.__name__} has the setting {field}, which its file does not read by name"
                + (at_place(part))
            )


_UNREAD = "which none of its code reads: it would change nothing; use it, or take it out"


def unread(part: type, root: type) -> Iterator[tuple[str, bool]]:
    """Yield each field that no code in the modules of a part reads, and whether that is certain.

    It is not certain if the part hands itself on, or reads its fields all together.
    """
    own = _own_classes(part, root)
    if not dataclasses.is_dataclass(part) or not own:
        return
    trees = [module_tree(one) for one in own]
    if any(tree is None for tree in trees):
        return
    read = frozenset[str]().union(*(attributes_read(one) for one in own))
    names = {key for one in own for key in _annotations(one)} - _framework_names(part) - read
    left = [one.name for one in dataclasses.fields(part) if one.name in names]
    if left:
        hidden = any(_hands_itself_on(tree) for tree in trees if tree is not None)
        beside = _read_beside(own)
        for name in left:
            yield name, not hidden and name not in beside


def _framework_names(part: type) -> set[str]:
    """Return the names that the framework's classes above a part have, and so read."""
    ours = [one for one in part.__mro__ if one.__module__.partition(".")[0] in ("layers", "fedmx")]
    return {name for one in ours for name in (*dir(one), *_annotations(one))}


def _read_beside(own: list[type]) -> set[str]:
    """Return the attributes that other imported modules in the folders of a part's modules read."""
    folders = {os.path.dirname(inspect.getsourcefile(one) or "") for one in own}
    modules = [
        module
        for module in list(sys.modules.values())
        if os.path.dirname(getattr(module, "__file__", None) or "-") in folders
    ]
    return {name for module in modules for name in attributes_read(module)}


def _own_classes(part: type, root: type) -> list[type]:
    """Return the classes of a part that are neither the framework's nor Python's."""
    return [
        one
        for one in part.__mro__
        if one not in root.__mro__
        and one.__module__.partition(".")[0] not in ("layers", "fedmx", "builtins", "abc", "typing")
    ]


def _declared(part: type, root: type) -> list[str]:
    """Return the settings that a class without a dataclass of its own declares."""
    return [
        name
        for name, annotation in _annotations(part).items()
        if not name.startswith("_")
        and "ClassVar" not in str(annotation)
        and typing.get_origin(annotation) is not typing.ClassVar
        and name not in dir(root)
    ]


def _annotations(part: type) -> dict[str, object]:
    return dict(vars(part).get("__annotations__", {}))


def _is_made(part: type) -> bool:
    """Return whether a class itself, and not only one above it, was made a dataclass."""
    return "__dataclass_fields__" in vars(part)


def _is_frozen(part: type) -> bool:
    made: Any = part
    return bool(made.__dataclass_params__.frozen) or not dataclasses.fields(made)


def _parameters(part: type) -> list[str]:
    """Return the parameters of a class's own `__init__`."""
    own = vars(part).get("__init__")
    return list(inspect.signature(own).parameters)[1:] if inspect.isfunction(own) else []


def _hands_itself_on(tree: ast.Module) -> bool:
    """Return whether code in a module uses `self` as a whole, or reads fields by no name."""
    named = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return any(
        (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and ((node.id == "self" and id(node) not in named) or node.id in _WHOLE)
        )
        or (
            isinstance(node, ast.Attribute)
            and node.attr in ("__dict__", "asdict", "astuple", "fields")
        )
        for node in ast.walk(tree)
    )
