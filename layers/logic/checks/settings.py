"""The settings of a part: they are the fields of a frozen dataclass, and its code reads them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import sys
import typing
from collections.abc import Iterator
from typing import Any

from layers.logic.checks.code_place import at_place
from layers.logic.checks.methods import attributes_read, module_tree
from layers.logic.errors import LogicError

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
            raise LogicError(f"{name} has the setting {field}, {_NOBODY}{at_place(part)}")


def unread_settings(part: type, root: type) -> Iterator[str]:
    """Yield a line for each setting that none of a part's code seems to read."""
    for field, certain in unread(part, root):
        if not certain:
            yield (
                f"{part.__name__} has the setting {field}, which its file does not read by name"
                + (at_place(part))
            )


_NOBODY = "which none of its code reads: it would change nothing; use it, or take it out"


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
    """Return what other imported modules read that are in the folders of a part's modules."""
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
