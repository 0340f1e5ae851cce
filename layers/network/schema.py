"""Schemas of messages, compiled from the type hints of frozen dataclasses."""

from __future__ import annotations

import collections.abc
import dataclasses
import sys
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Union

import numpy as np

from layers.network.errors import MessageTypeError

DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<f2"),
    4: np.dtype("<i1"),
    5: np.dtype("<i2"),
    6: np.dtype("<i4"),
    7: np.dtype("<i8"),
    8: np.dtype("<u1"),
    9: np.dtype("<u2"),
    10: np.dtype("<u4"),
    11: np.dtype("<u8"),
    12: np.dtype("?"),
}
DTYPE_CODES = {dtype: code for code, dtype in DTYPES.items()}

# The type of `type Name = ...` (Python 3.12), and of `NDArray` in recent versions of numpy.
NAMED_ALIAS: Any = getattr(typing, "TypeAliasType", ())
SCALARS: dict[Any, str] = {
    type(None): "nil",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
}


@dataclass(frozen=True)
class Scalar:
    """None, a bool, an int, a float, a str or bytes; `choices` lists the allowed values."""

    choices: tuple[object, ...] | None = None


@dataclass(frozen=True)
class Array:
    """An ndarray; `dtype` is None where the annotation leaves it open."""

    dtype: np.dtype[Any] | None


@dataclass(frozen=True)
class Sequence:
    """A list or tuple of any length with items of one type."""

    item: Schema
    make: type


@dataclass(frozen=True)
class Row:
    """A tuple of a fixed length, with a schema for each place."""

    items: tuple[Schema, ...]


@dataclass(frozen=True)
class Table:
    """A dict with keys of one scalar type."""

    key: type
    item: Schema


@dataclass(frozen=True)
class Record:
    """A dataclass, field by field.

    A field in `optional` travels only if its value is not this default.
    """

    cls: type
    fields: dict[str, Schema]
    optional: dict[str, Any] = field(default_factory=dict)


Branch: TypeAlias = "Scalar | Array | Sequence | Row | Table | Record"


@dataclass(eq=False)
class Schema:
    """How each kind of value on the wire (nil, bool, int, ..., list, map) is read."""

    text: str
    branches: dict[str, Branch] = field(default_factory=dict)
    members: list[Schema] = field(default_factory=list)


class Compiler:
    """Compiles dataclasses to schemas; a recursive alias refers to its own schema."""

    def __init__(self) -> None:
        self._known: dict[object, Schema] = {}
        self._unsettled: list[tuple[Schema, type]] = []

    def record(self, cls: type) -> Record:
        """Compile a frozen dataclass.

        Raises:
            MessageTypeError: it is not one, or a field has a type that cannot be encoded.
        """
        if not dataclasses.is_dataclass(cls):
            raise MessageTypeError(f"{cls!r} must be a frozen dataclass to travel")
        branch = self._schema(cls, cls).branches["map"]
        assert isinstance(branch, Record)
        # All members of all unions are known only now, because an alias may contain itself.
        while self._unsettled:
            self._settle(*self._unsettled.pop())
        return branch

    def _schema(self, annotation: object, owner: type) -> Schema:
        if annotation not in self._known:
            schema = self._known[annotation] = Schema(_text(annotation))
            self._fill(schema, annotation, owner)
        return self._known[annotation]

    def _fill(self, schema: Schema, annotation: object, owner: type) -> None:
        origin = typing.get_origin(annotation)
        if isinstance(annotation, (str, typing.ForwardRef)):
            parts: tuple[object, ...] = (self._resolve({"value": annotation}, owner)["value"],)
        elif isinstance(annotation, NAMED_ALIAS):
            parts = (annotation.__value__,)
        elif isinstance(origin, NAMED_ALIAS):
            parts = (origin.__value__[typing.get_args(annotation)],)
        elif origin is Union or origin is types.UnionType:
            parts = typing.get_args(annotation)
        else:
            kind, branch = self._branch(annotation, origin, owner)
            schema.branches[kind] = branch
            return
        schema.members = [self._schema(part, owner) for part in parts]
        self._unsettled.append((schema, owner))

    @staticmethod
    def _settle(schema: Schema, owner: type) -> None:
        """Collect the branches of a union's members, recursively."""
        seen = {id(schema)}
        reached = list(schema.members)
        while reached:
            member = reached.pop()
            if id(member) in seen:
                continue
            seen.add(id(member))
            reached += member.members
            for kind, branch in () if member.members else member.branches.items():
                if not _alike(schema.branches.setdefault(kind, branch), branch):
                    raise MessageTypeError(
                        f"{owner.__qualname__}: {schema.text} has two members that look the same "
                        f"on the wire (both a {kind}): keep one of them"
                    )

    def _branch(self, annotation: object, origin: object, owner: type) -> tuple[str, Branch]:
        args = typing.get_args(annotation)
        if annotation is None or annotation in SCALARS:
            return SCALARS[type(None) if annotation is None else annotation], Scalar()
        if origin is Literal and {type(value) for value in args} == {str}:
            return "str", Scalar(choices=args)
        if annotation is np.ndarray or origin is np.ndarray:
            return "array", Array(self._dtype(args, owner))
        if origin in (list, collections.abc.Sequence) and args:
            return "list", Sequence(self._schema(args[0], owner), list if origin is list else tuple)
        if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
            return "list", Sequence(self._schema(args[0], owner), tuple)
        if origin is tuple:
            return "list", Row(tuple(self._schema(part, owner) for part in args if part != ()))
        if origin in (dict, collections.abc.Mapping) and args and args[0] in (str, int):
            return "map", Table(args[0], self._schema(args[1], owner))
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            return "map", self._record(annotation)
        raise MessageTypeError(
            f"{owner.__qualname__}: a field of type {_text(annotation)} cannot travel; use None, "
            "bool, int, float, str, bytes, ndarray, list, tuple, dict[str|int, ...] or a frozen "
            "dataclass"
        )

    def _record(self, cls: type) -> Record:
        if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise MessageTypeError(f"{cls.__qualname__} must be a frozen dataclass to travel")
        fields = dataclasses.fields(cls)
        if any(not item.init for item in fields):
            raise MessageTypeError(f"{cls.__qualname__}: a field with init=False cannot travel")
        hints = self._resolve(None, cls)
        schemas = {item.name: self._schema(hints[item.name], cls) for item in fields}
        optional = {one.name: one.default for one in fields if one.metadata.get("optional")}
        return Record(cls, schemas, optional)

    @staticmethod
    def _resolve(annotations: dict[str, object] | None, owner: type) -> dict[str, Any]:
        """Return the type hints of `owner`, or resolve annotations in its module."""
        try:
            if annotations is None:
                return typing.get_type_hints(owner)

            def holder() -> None: ...

            holder.__annotations__ = annotations
            return typing.get_type_hints(holder, globalns=vars(sys.modules[owner.__module__]))
        except (NameError, TypeError) as error:
            raise MessageTypeError(
                f"{owner.__qualname__}: a type hint cannot be resolved ({error}); import the name "
                "in the module of the dataclass"
            ) from None

    @staticmethod
    def _dtype(args: tuple[Any, ...], owner: type) -> np.dtype[Any] | None:
        scalars = typing.get_args(args[1]) if len(args) == 2 else ()
        if not scalars or not isinstance(scalars[0], type):
            return None
        if scalars[0] in (np.generic, np.number, np.floating, np.integer, np.inexact):
            return None  # an abstract type leaves the choice to the message
        dtype: np.dtype[Any] = np.dtype(scalars[0]).newbyteorder("<")
        if dtype not in DTYPE_CODES:
            raise MessageTypeError(f"{owner.__qualname__}: arrays of {dtype} cannot travel")
        return dtype


def _alike(one: Branch, other: Branch) -> bool:
    """Return whether two branches read the same; tables compare by their items' kinds."""
    if isinstance(one, Table) and isinstance(other, Table):
        return one.key is other.key and _kinds(one.item) == _kinds(other.item)
    return one == other


def _kinds(schema: Schema) -> set[str]:
    """Return the kinds of value that a schema and its members allow."""
    kinds: set[str] = set()
    seen: set[int] = set()
    reached = [schema]
    while reached:
        member = reached.pop()
        if id(member) not in seen:
            seen.add(id(member))
            reached += member.members
            kinds |= member.branches.keys()
    return kinds


def _text(annotation: object) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__
    return str(annotation)
