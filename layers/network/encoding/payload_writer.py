"""Writes a message's values into a msgpack header and lays its arrays out behind it."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import numpy as np

from layers.network.encoding.payload import Payload
from layers.network.encoding.payload_layout import (
    ALIGNMENT,
    ARRAY,
    ARRAY_EXT,
    LENGTH,
    MAX_DEPTH,
    MAX_DIMENSIONS,
    MAX_VALUES,
    ZEROS,
)
from layers.network.encoding.schema import (
    DTYPE_CODES,
    Array,
    Branch,
    Record,
    Row,
    Scalar,
    Schema,
    Sequence,
    Table,
)
from layers.network.errors import MessageTypeError


class PayloadWriter:
    """Packs the header, and lays the arrays out behind it.

    Attributes:
        values: how many values were written, keys among them, as a reader counts them.
    """

    def __init__(self) -> None:
        self.packer = msgpack.Packer(autoreset=False)
        self._bodies: list[memoryview] = []
        self._end = 0
        self.values = 2  # the message's number, and the message

    def payload(self, name: str) -> Payload:
        """Return what was written."""
        header = self.packer.bytes()
        buffers = [memoryview(LENGTH.pack(len(header)) + header)]
        size = len(buffers[0])
        if self._end:
            padding = -size % ALIGNMENT
            buffers += [ZEROS[:padding], *self._bodies]
            size += padding + self._end
        return Payload(tuple(part for part in buffers if len(part)), size, name)

    def value(self, schema: Schema, value: object, path: str, depth: int) -> None:
        """Write a value.

        Raises:
            MessageTypeError: the schema does not allow the value.
        """
        self._count(path)
        if depth > MAX_DEPTH:
            raise MessageTypeError(f"{path}: nested more than {MAX_DEPTH} deep")
        kind = _KINDS.get(type(value))
        if kind is None:
            if isinstance(value, np.generic):
                value = value.item()
            kind = _kind(value)
        if kind == "int" and "int" not in schema.branches and "float" in schema.branches:
            kind, value = "float", float(value)  # type: ignore[arg-type]
        branch = schema.branches.get(kind)
        if branch is None:
            found = type(value).__qualname__
            raise MessageTypeError(f"{path} must be {schema.text}, not {found}")
        self._branch(branch, value, path, depth)

    def _count(self, path: str) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise MessageTypeError(f"{path}: more than {MAX_VALUES} values in one message")

    def _branch(self, branch: Branch, value: Any, path: str, depth: int) -> None:
        match branch:
            case Scalar(choices):
                if choices is not None and value not in choices:
                    raise MessageTypeError(f"{path} must be one of {choices}, not {value!r}")
                try:
                    self.packer.pack(value)
                except (OverflowError, UnicodeError, ValueError) as error:
                    raise MessageTypeError(f"{path}: {error}") from None
            case Array(dtype):
                self._array(value, dtype, path)
            case Sequence(item):
                self.packer.pack_array_header(len(value))
                for index, part in enumerate(value):
                    self.value(item, part, f"{path}[{index}]", depth + 1)
            case Row(items):
                if len(value) != len(items):
                    raise MessageTypeError(f"{path} must have {len(items)} items, not {len(value)}")
                self.packer.pack_array_header(len(items))
                for index, (item, part) in enumerate(zip(items, value, strict=True)):
                    self.value(item, part, f"{path}[{index}]", depth + 1)
            case Table(key, item):
                self.packer.pack_map_header(len(value))
                for name, part in value.items():
                    if type(name) is not key:
                        raise MessageTypeError(f"{path}: key {name!r} must be {key.__name__}")
                    self._count(path)
                    self._branch(Scalar(), name, path, depth)
                    self.value(item, part, f"{path}[{name!r}]", depth + 1)
            case Record():
                if type(value) is not branch.cls:
                    raise MessageTypeError(f"{path} must be a {branch.cls.__qualname__}")
                self.record(branch, value, path, depth)

    def record(self, record: Record, value: object, path: str, depth: int) -> None:
        """Write a dataclass, field by field.

        Raises:
            MessageTypeError: the schema does not allow a field's value.
        """
        self.packer.pack_map_header(len(record.fields))
        for name, schema in record.fields.items():
            self._count(path)
            self.packer.pack(name)
            self.value(schema, getattr(value, name), f"{path}.{name}", depth + 1)

    def _array(self, array: np.ndarray, dtype: np.dtype[Any] | None, path: str) -> None:
        little = array.dtype.newbyteorder("<")
        if little not in DTYPE_CODES:
            raise MessageTypeError(f"{path}: arrays of {array.dtype} cannot travel")
        if dtype is not None and little != dtype:
            raise MessageTypeError(f"{path} must be an array of {dtype}, not of {array.dtype}")
        if array.ndim > MAX_DIMENSIONS:
            raise MessageTypeError(f"{path}: {array.ndim} dimensions, {MAX_DIMENSIONS} at the most")
        plain = np.asarray(array, dtype=little, order="C")
        padding = -self._end % ALIGNMENT
        head = ARRAY.pack(DTYPE_CODES[little], plain.ndim, self._end + padding)
        dims = struct.pack(f"<{plain.ndim}Q", *plain.shape)
        self.packer.pack_ext_type(ARRAY_EXT, head + dims)
        # The padding comes before the array, even before an empty one: offsets never go back.
        self._bodies += [ZEROS[:padding], plain.reshape(-1).view(np.uint8).data]
        self._end += padding + plain.nbytes


# The kinds of values whose type is exactly this one; `_kind` also knows types that inherit.
_KINDS: dict[type, str] = {
    type(None): "nil",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    np.ndarray: "array",
    list: "list",
    tuple: "list",
    dict: "map",
}


def _kind(value: object) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "str"
        case bytes():
            return "bytes"
        case np.ndarray():
            return "array"
        case list() | tuple():
            return "list"
        case _:
            return "map"
