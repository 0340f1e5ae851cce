"""Encoded messages: a msgpack header with the fields, and the arrays' bytes behind it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np

from layers.network.errors import MalformedMessage, MessageTypeError
from layers.network.schema import (
    DTYPE_CODES,
    DTYPES,
    SCALARS,
    Array,
    Branch,
    Record,
    Row,
    Scalar,
    Schema,
    Sequence,
    Table,
)

ALIGNMENT = 64
MAX_DEPTH = 24
MAX_VALUES = 1 << 20
MAX_DIMENSIONS = 16

LENGTH = struct.Struct("<I")
ARRAY = struct.Struct("<BBQ")  # dtype code, number of dimensions, offset; the dimensions follow
ARRAY_EXT = 1
HEAD_BYTES = LENGTH.size + 3  # enough to read the number of the message type
ZEROS = memoryview(bytes(ALIGNMENT))


@dataclass(frozen=True, eq=False)
class Payload:
    """One encoded message: its buffers in order, its size in bytes, and its type's name.

    Buffers share the memory of arrays, which must not change until the message has been sent.
    """

    buffers: tuple[memoryview, ...]
    size: int
    name: str

    def __bytes__(self) -> bytes:
        return b"".join(self.buffers)


class PayloadWriter:
    """Packs the header, and lays the arrays out behind it.

    Methods raise MessageTypeError if the schema does not allow a value.

    Attributes:
        values: number of values written, including keys; a reader counts the same.
    """

    def __init__(self) -> None:
        self.packer = msgpack.Packer(autoreset=False)
        self._bodies: list[memoryview] = []
        self._end = 0
        self.values = 2  # the message's number, and the message

    def payload(self, name: str) -> Payload:
        """Return the encoded message."""
        header = self.packer.bytes()
        buffers = [memoryview(LENGTH.pack(len(header)) + header)]
        size = len(buffers[0])
        if self._end:
            padding = -size % ALIGNMENT
            buffers += [ZEROS[:padding], *self._bodies]
            size += padding + self._end
        return Payload(tuple(part for part in buffers if len(part)), size, name)

    def value(self, schema: Schema, value: object, path: str, depth: int) -> None:
        """Write a value."""
        self._count(path)
        if depth > MAX_DEPTH:
            raise MessageTypeError(f"{path}: nested more than {MAX_DEPTH} deep")
        kind = _KINDS_BY_TYPE.get(type(value))
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
                    raise MessageTypeError(f"{path} must be of type {branch.cls.__qualname__}")
                self.record(branch, value, path, depth)

    def record(self, record: Record, value: object, path: str, depth: int) -> None:
        """Write a dataclass, field by field, without optional ones that have their default."""
        optional = record.optional.items()
        left_out = {name for name, default in optional if getattr(value, name) == default}
        self.packer.pack_map_header(len(record.fields) - len(left_out))
        for name, schema in record.fields.items():
            if name in left_out:
                continue
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
        # Padding comes before every array, even an empty one: offsets never decrease.
        self._bodies += [ZEROS[:padding], plain.reshape(-1).view(np.uint8).data]
        self._end += padding + plain.nbytes


_KINDS_BY_TYPE: dict[type, str] = {
    **SCALARS,
    np.ndarray: "array",
    list: "list",
    tuple: "list",
    dict: "map",
}


def _kind(value: object) -> str:
    return next((kind for cls, kind in _KINDS_BY_TYPE.items() if isinstance(value, cls)), "map")


class PayloadReader:
    """Reads a message from untrusted bytes, value by value: no claimed size allocates memory.

    Methods raise MalformedMessage if the bytes are not a message of the schema.

    Attributes:
        max_values: the most values that the header may have, including keys.
        values: number of values read so far.
    """

    def __init__(self, buffer: memoryview) -> None:
        if len(buffer) < LENGTH.size:
            raise MalformedMessage(f"a message of {len(buffer)} bytes has no header")
        (length,) = LENGTH.unpack_from(buffer)
        start = LENGTH.size + length
        if not 0 < length <= len(buffer) - LENGTH.size:
            raise MalformedMessage(f"a header of {length} bytes in a message of {len(buffer)}")
        self._header = buffer[LENGTH.size : start]
        self._unpacker = msgpack.Unpacker(max_buffer_size=length, raw=False, strict_map_key=False)
        self._unpacker.feed(self._header)
        padding = -start % ALIGNMENT if len(buffer) > start else 0
        if padding and len(buffer) - start <= padding:
            raise MalformedMessage("the message ends in the padding behind its header")
        self._check_zeros(buffer[start : start + padding])
        self._bodies = buffer[start + padding :]
        self._end = 0
        self.values = 0
        self.max_values = MAX_VALUES

    def finish(self) -> None:
        """Check that all bytes were read."""
        if self._unpacker.tell() != len(self._header):
            raise MalformedMessage("bytes are left over behind the header's last field")
        if self._end != len(self._bodies):
            raise MalformedMessage("bytes are left over behind the last array")

    @staticmethod
    def _check_zeros(padding: memoryview) -> None:
        if any(padding):
            raise MalformedMessage("padding that is not zero")

    def _next_kind(self, path: str) -> str:
        self.values += 1
        if self.values > self.max_values:
            raise MalformedMessage(f"{path}: more than {self.max_values} values in one message")
        position = self._unpacker.tell()
        if position >= len(self._header):
            raise MalformedMessage(f"{path}: the header ends too early")
        return _KINDS_BY_BYTE[int(self._header[position])]

    def scalar(self, path: str, expected: str) -> Any:
        """Read a value of one kind."""
        kind = self._next_kind(path)
        if kind != expected:
            raise MalformedMessage(f"{path} must be of type {expected}, not {kind}")
        return self._unpack(path)

    def _unpack(self, path: str) -> Any:
        try:
            return self._unpacker.unpack()
        except (msgpack.UnpackException, ValueError) as error:
            raise MalformedMessage(f"{path}: {_short(error) or 'cut short'}") from None

    def _count(self, path: str, is_map: bool) -> int:
        """Return the length of a list or map, checked against the bytes that follow."""
        try:
            read = self._unpacker.read_map_header if is_map else self._unpacker.read_array_header
            count = int(read())
        except (msgpack.UnpackException, ValueError) as error:
            raise MalformedMessage(f"{path}: {_short(error) or 'cut short'}") from None
        if count * (1 + is_map) > len(self._header) - self._unpacker.tell():
            raise MalformedMessage(f"{path} announces {count} items, more than there are bytes")
        return count

    def value(self, schema: Schema, path: str, depth: int) -> Any:
        """Read a value of any kind that the schema allows."""
        if depth > MAX_DEPTH:
            raise MalformedMessage(f"{path}: nested more than {MAX_DEPTH} deep")
        kind = self._next_kind(path)
        branch = schema.branches.get(kind)
        match branch:
            case Scalar(choices):
                value = self._unpack(path)
                if choices is not None and value not in choices:
                    raise MalformedMessage(f"{path} must be one of {choices}, not {_short(value)}")
                return value
            case Array(dtype):
                return self._array(dtype, path)
            case Sequence(item, make):
                places = range(self._count(path, is_map=False))
                return make(self.value(item, f"{path}[{place}]", depth + 1) for place in places)
            case Row(items):
                count = self._count(path, is_map=False)
                if count != len(items):
                    raise MalformedMessage(f"{path} must have {len(items)} items, not {count}")
                places = range(count)
                return tuple(
                    self.value(items[place], f"{path}[{place}]", depth + 1) for place in places
                )
            case Table(key, item):
                return self._table(key, item, path, depth)
            case Record():
                return self.record(branch, path, depth, announced=True)
        raise MalformedMessage(f"{path} must be {schema.text}, not {kind}")

    def _table(self, key: type, item: Schema, path: str, depth: int) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        for _ in range(self._count(path, is_map=True)):
            name = self.scalar(f"{path}: a key", key.__name__)
            if name in table:
                raise MalformedMessage(f"{path}: the key {_short(name)} comes twice")
            table[name] = self.value(item, f"{path}[{_short(name)}]", depth + 1)
        return table

    def record(self, record: Record, path: str, depth: int, announced: bool = False) -> Any:
        """Read a dataclass; `announced`: its kind was read before."""
        if not announced and self._next_kind(path) != "map":
            raise MalformedMessage(f"{path} must be a map of fields")
        values: dict[str, Any] = {}
        for _ in range(self._count(path, is_map=True)):
            name = self.scalar(f"{path}: a field name", "str")
            if name not in record.fields or name in values:
                raise MalformedMessage(f"{path} has an unknown or repeated field {_short(name)}")
            values[name] = self.value(record.fields[name], f"{path}.{name}", depth + 1)
        missing = record.fields.keys() - values.keys() - record.optional.keys()
        if missing:
            raise MalformedMessage(f"{path} lacks the field {min(missing)}")
        try:
            return record.cls(**values)
        # A message class checks its own values: whatever it raises, the peer is to blame.
        except Exception as error:  # noqa: BLE001
            raise MalformedMessage(f"{path}: {_short(error)}") from None

    def _array(self, expected: np.dtype[Any] | None, path: str) -> np.ndarray:
        ext = self._unpack(path)
        if not isinstance(ext, msgpack.ExtType) or ext.code != ARRAY_EXT:
            raise MalformedMessage(f"{path}: an extension type that is not an array")
        if len(ext.data) < ARRAY.size:
            raise MalformedMessage(f"{path}: an array without a description")
        code, ndim, offset = ARRAY.unpack_from(ext.data)
        if ndim > MAX_DIMENSIONS or len(ext.data) != ARRAY.size + 8 * ndim:
            raise MalformedMessage(f"{path}: {ndim} dimensions do not match the description")
        dtype = DTYPES.get(code)
        if dtype is None or (expected is not None and dtype != expected):
            wanted = expected or "a known dtype"
            raise MalformedMessage(f"{path} must be an array of {wanted}, not of {dtype or code}")
        shape = struct.unpack_from(f"<{ndim}Q", ext.data, ARRAY.size)
        count = 1
        for size in shape:
            count *= size
        end = offset + count * dtype.itemsize
        padding = -self._end % ALIGNMENT
        if offset != self._end + padding or end > len(self._bodies):
            raise MalformedMessage(f"{path}: an array out of place or longer than its bytes")
        self._check_zeros(self._bodies[self._end : offset])
        self._end = end
        try:
            array: np.ndarray = np.ndarray(shape, dtype, self._bodies, offset)
        except (ValueError, TypeError, OverflowError):
            raise MalformedMessage(f"{path}: an impossible shape") from None
        if code == DTYPE_CODES[np.dtype("?")] and count and array.view(np.uint8).max() > 1:
            raise MalformedMessage(f"{path}: a bool that is neither 0 nor 1")
        return array


def number_in(head: bytes | memoryview) -> int | None:
    """Return the number of a message's type from its first bytes, None if they have none."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(head))
    unpacker.feed(head[LENGTH.size :])
    try:
        number = unpacker.unpack()
    except (msgpack.UnpackException, ValueError):
        return None  # decoding the whole message will report the error
    return number if type(number) is int else None


def _kind_table() -> list[str]:
    """Return the kind of msgpack value for each first byte."""
    table = ["int"] * 128 + ["map"] * 16 + ["list"] * 16 + ["str"] * 32
    table += ["nil", "invalid", "bool", "bool", "bytes", "bytes", "bytes", "ext", "ext", "ext"]
    table += ["float"] * 2 + ["int"] * 8 + ["ext"] * 5 + ["str"] * 3 + ["list"] * 2 + ["map"] * 2
    table += ["int"] * 32
    return ["array" if kind == "ext" else kind for kind in table]


_KINDS_BY_BYTE = _kind_table()


def _short(value: object) -> str:
    """Return a peer's value, made safe and short enough for an error message."""
    text = str(value) if isinstance(value, Exception) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."
