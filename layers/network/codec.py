"""Encodes typed messages as a msgpack header and the arrays' own memory, and decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layers.network.errors import LimitExceeded, MalformedMessage, MessageTypeError
from layers.network.payload import MAX_VALUES, Payload, PayloadReader, PayloadWriter, number_in
from layers.network.schema import Compiler, Record


class MessageCodec:
    """Encodes and decodes a closed table of message types, given as number -> frozen dataclass.

    Args:
        types: the message types by number.
        max_bytes: the size limit of a type's messages; other types have none.
        max_values: the limit on a type's values, including keys; other types have `MAX_VALUES`.

    Raises:
        MessageTypeError: a number is not allowed, or a type cannot be encoded.
    """

    def __init__(
        self,
        types: Mapping[int, type],
        *,
        max_bytes: Mapping[type, int] | None = None,
        max_values: Mapping[type, int] | None = None,
    ) -> None:
        self._max_bytes = dict(max_bytes or {})
        self._max_values = dict(max_values or {})
        compiler = Compiler()
        self._records: dict[int, Record] = {}
        self._numbers: dict[type, int] = {}
        for number, cls in types.items():
            if not isinstance(number, int) or not 0 <= number < 1 << 16:
                raise MessageTypeError(f"message number {number!r}: use an int from 0 to 65535")
            if cls in self._numbers:
                raise MessageTypeError(f"{cls.__qualname__} has two numbers in the message table")
            self._records[number] = compiler.record(cls)
            self._numbers[cls] = number

    def encode(self, message: object) -> Payload:
        """Encode one message; the same message gives the same bytes. Dicts keep their order.

        Raises:
            MessageTypeError: its type is not in the table, or a field has a wrong value.
            LimitExceeded: it is too large for its type, or has too many values.
        """
        cls = type(message)
        if cls not in self._numbers:
            names = ", ".join(sorted(known.__qualname__ for known in self._numbers))
            raise MessageTypeError(f"{cls.__qualname__} is not a message; the messages are {names}")
        number = self._numbers[cls]
        writer = PayloadWriter()
        writer.packer.pack(number)
        writer.record(self._records[number], message, cls.__qualname__, 0)
        payload = writer.payload(cls.__qualname__)
        self._check_size(cls, payload.size)
        most = self._max_values.get(cls, writer.values)
        if writer.values > most:
            raise LimitExceeded(
                f"a {cls.__qualname__} of {writer.values} values; a message of this type has at "
                f"most {most}"
            )
        return payload

    def check_head(self, head: bytes | memoryview, size: int) -> None:
        """Check the size of a message by its first `HEAD_BYTES`.

        Args:
            head: these bytes, fewer if the message has fewer.
            size: the size of the whole message.

        Raises:
            LimitExceeded: it is too large for its type.
        """
        number = number_in(head)
        if number in self._records:
            self._check_size(self._records[number].cls, size)

    def _check_size(self, cls: type, size: int) -> None:
        most = self._max_bytes.get(cls, size)
        if size > most:
            raise LimitExceeded(
                f"a {cls.__qualname__} of {size} bytes; a message of this type has at most {most}"
            )

    def decode(self, buffer: bytes | bytearray | memoryview) -> Any:
        """Decode one message; its arrays are read-only views into `buffer`.

        Raises:
            MalformedMessage: the bytes are not exactly one message of a type in the table, or it
                has too many values for its type.
        """
        return self.decode_counted(buffer)[0]

    def decode_counted(self, buffer: bytes | bytearray | memoryview) -> tuple[Any, int]:
        """Decode one message like `decode`; return it with its number of values.

        An array counts as one value, and so does each key of a mapping. A value takes much more
        memory than its bytes in `buffer`.
        """
        reader = PayloadReader(memoryview(buffer).toreadonly().cast("B"))
        number = reader.scalar("message number", "int")
        record = self._records.get(number)
        if record is None:
            raise MalformedMessage(f"unknown message number {number}")
        reader.max_values = min(MAX_VALUES, self._max_values.get(record.cls, MAX_VALUES))
        message = reader.record(record, record.cls.__qualname__, 0)
        reader.finish()
        return message, reader.values
