"""Messages: what was encoded is what is decoded, and nothing else is ever decoded."""

import re
import struct
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal, Union

import msgpack
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layers.network import MalformedMessage, MessageCodec, MessageTypeError, codec, payload
from layers.network.payload import number_in
from layers.network.schema import DTYPES
from tests.network.wire_messages import CODEC, Inner, Note, Task, Update

shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
arrays = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 2, size=shape).astype(dtype),
    st.sampled_from(list(DTYPES.values())),
    shapes,
    st.integers(0, 9),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=True)
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
values = st.recursive(
    scalars | arrays, lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
tasks = st.builds(
    Task,
    round=st.integers(0, 2**40),
    weights=arrays,
    inner=st.builds(Inner, st.floats(), st.lists(st.text(max_size=3)).map(tuple)),
    slots=st.dictionaries(st.text(max_size=4), st.dictionaries(st.text(max_size=4), values)),
)
updates = st.builds(
    Update,
    client=st.text(max_size=9),
    accepted=st.booleans(),
    loss=st.none() | st.floats(),
    counts=st.dictionaries(st.integers(-9, 9), st.integers(-9, 9)),
    deltas=st.lists(arrays, max_size=3),
    note=st.binary(max_size=40),
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, n), getattr(other, n)) for n in one.__dataclass_fields__)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (one != one and other != other)


def encoded(header: Any, bodies: bytes = b"", number: int = 1) -> bytes:
    packed = msgpack.packb(number) + msgpack.packb(header)
    start = struct.pack("<I", len(packed)) + packed
    return start + (bytes(-len(start) % 64) + bodies if bodies else b"")


@given(tasks | updates)
def test_a_message_survives_a_round_trip(message: Task | Update) -> None:
    payload = CODEC.encode(message)
    data = bytes(payload)
    assert len(data) == payload.size
    assert same(message, CODEC.decode(data))
    assert bytes(CODEC.encode(CODEC.decode(data))) == data


@given(tasks | updates, st.data())
def test_a_damaged_message_decodes_or_is_refused(message: Any, data: st.DataObject) -> None:
    damaged = bytearray(bytes(CODEC.encode(message)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    assert isinstance(decoded_or_none(damaged), (Task, Update, Note, type(None)))


def decoded_or_none(data: bytes | bytearray) -> Any:
    try:
        return CODEC.decode(data)
    except MalformedMessage:
        return None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes) -> None:
    header = struct.pack("<I", max(len(data) - 4, 0)) + data
    for attempt in (data, header):
        assert isinstance(decoded_or_none(attempt), (Task, Update, Note, type(None)))


@given(tasks)
def test_every_truncated_or_extended_message_is_refused(message: Task) -> None:
    data = bytes(CODEC.encode(message))
    for end in range(0, len(data), max(1, len(data) // 20)):
        with pytest.raises(MalformedMessage):
            CODEC.decode(data[:end])
    with pytest.raises(MalformedMessage):
        CODEC.decode(data + b"\0")


def test_an_array_is_not_copied_on_either_end() -> None:
    weights = np.arange(1000, dtype=np.float32)
    payload = CODEC.encode(Task(1, weights))
    assert np.shares_memory(np.frombuffer(payload.buffers[-1], dtype=np.float32), weights)
    received = bytearray(bytes(payload))
    task = CODEC.decode(received)
    assert np.shares_memory(task.weights, np.frombuffer(received, dtype=np.uint8))
    assert not task.weights.flags.writeable


def test_arrays_are_aligned_to_64_bytes() -> None:
    payload = CODEC.encode(Update("c", True, deltas=[np.ones(3), np.ones(5, "i1"), np.ones(2)]))
    data = bytes(payload)
    update = CODEC.decode(data)
    base = np.frombuffer(data, dtype=np.uint8).ctypes.data
    assert [(array.ctypes.data - base) % 64 for array in update.deltas] == [0, 0, 0]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12, dtype=np.int16)[::2],
        np.array(2.5),
        np.zeros((0, 4), np.uint8),
        np.arange(6.0).reshape(14 * (1,) + (2, 3)),
    ],
    ids=["big-endian", "fortran", "strided", "scalar", "empty", "16 dimensions"],
)
def test_an_array_of_any_layout_arrives_with_its_values_and_shape(array: np.ndarray) -> None:
    received = CODEC.decode(bytes(CODEC.encode(Task(1, array)))).weights
    assert received.shape == array.shape
    assert np.array_equal(received, array)


ENDLESS: dict[str, Any] = {}
ENDLESS["again"] = ENDLESS


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Inner(0.1), "Inner is not a message"),
        (Task(True, np.ones(1)), "Task.round"),
        (Task(1, np.array(["a"])), "cannot travel"),
        (Task(1, np.array([object()])), "cannot travel"),
        (Task(1, np.ones(1, complex)), "cannot travel"),
        (Task(1, None), "Task.weights"),
        (Task(2**64, np.ones(1)), "Task.round"),
        (Update(3, True), "Update.client"),
        (Update("\ud800", True), "Update.client"),
        (Update("c", 1), "Update.accepted"),
        (Update("c", True, counts={"a": 1}), "key 'a' must be int"),
        (Task(1, np.ones(1), slots={"h": {"x": [1]}}), "Task.slots['h']['x']"),
        (Task(1, np.ones(17 * (1,))), "Task.weights: 17 dimensions, 16 at the most"),
        (Task(1, np.ones(1), inner=Note("x")), "Task.inner must be of type Inner"),
        (Task(1, np.ones(1), slots={"h": ENDLESS}), "deep"),
        (Update("c", True, loss=np.bool_(True)), "loss"),
        (Update("c", True, loss=np.str_("3")), "loss"),
        (Update("c", True, loss=np.datetime64("2020-01-01")), "loss"),
    ],
)
def test_a_value_of_the_wrong_type_is_not_sent(message: Any, words: str) -> None:
    with pytest.raises(MessageTypeError) as caught:
        CODEC.encode(message)
    assert words in str(caught.value)


NOTE = {"text": "x"}


def ext(code: int, ndim: int, offset: int, *shape: int) -> msgpack.ExtType:
    return msgpack.ExtType(1, struct.pack(f"<BBQ{len(shape)}Q", code, ndim, offset, *shape))


def task(weights: Any, **changes: Any) -> dict[str, Any]:
    inner = {"rate": 0.5, "names": []}
    return {"round": 1, "weights": weights, "inner": inner, "slots": {}, **changes}


def padded(data: bytes) -> bytes:
    """A message whose last byte of padding, before an array of 4 bytes, is not zero."""
    return data[:-5] + b"\x01" + data[-4:]


TWO_ARRAYS = {"client": "c", "accepted": True, "loss": None, "counts": {}, "note": b""}
TWO_ARRAYS = {**TWO_ARRAYS, "deltas": [ext(1, 1, 0, 1), ext(1, 1, 64, 1)]}
GAP_OF_60 = bytes(4) + bytes(59) + b"\x01" + bytes(4)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encoded(NOTE, number=9), "unknown message number 9"),
        (encoded({}, number=3), "lacks the field text"),
        (encoded({**NOTE, "more": 1}, number=3), "unknown or repeated field 'more'"),
        (encoded({"text": b"x"}, number=3), "Note.text"),
        (encoded({"text": True}, number=3), "must be str, not bool"),
        (encoded([1], number=3), "must be a map"),
        (encoded(task(ext(1, 1, 0, 4))), "longer than its bytes"),
        (encoded(task(ext(1, 1, 0, 1)), bytes(8)), "left over"),
        (encoded(task(ext(1, 1, 64, 1)), bytes(68)), "out of place"),
        (encoded(task(ext(1, 1, 0, 2**61)), bytes(4)), "longer than its bytes"),
        (encoded(task(ext(1, 2, 0, 0, 2**63))), "impossible shape"),
        (encoded(task(ext(99, 1, 0, 1)), bytes(4)), "must be an array"),
        (encoded(task(ext(1, 200, 0, 1)), bytes(4)), "weights: 200 dimensions"),
        (encoded(task(ext(1, 2, 0, 1)), bytes(4)), "weights: 2 dimensions"),
        (encoded(task(ext(1, 17, 0, *(17 * (1,)))), bytes(4)), "weights: 17 dimensions"),
        (encoded(task(msgpack.ExtType(1, bytes(9)))), "weights: an array without a description"),
        (encoded(TWO_ARRAYS, GAP_OF_60, number=2), "padding that is not zero"),
        (padded(encoded(task(ext(1, 1, 0, 1)), bytes(4))), "padding that is not zero"),
        (encoded(task(ext(12, 1, 0, 1)), b"\x02"), "neither 0 nor 1"),
        (encoded(task(msgpack.ExtType(7, b""))), "extension type"),
        (encoded(task(msgpack.Timestamp(1))), "extension type"),
        (encoded(task(ext(1, 1, 0, 0), round=True)), "Task.round"),
        (encoded(task(ext(1, 1, 0, 0), round=1.0)), "Task.round"),
        (encoded(task(ext(1, 1, 0, 0), slots={"a": {"b": [1]}})), "not list"),
        (encoded(task(ext(1, 1, 0, 0), inner={"rate": 1, "names": []})), "inner.rate"),
        (encoded(NOTE, number=3)[:-1] + b"\xff", "Note.text: 'utf-8' codec"),
        (struct.pack("<I", 8) + b"\x03\x81\xa4text\xc1", "must be str, not invalid"),
        (struct.pack("<I", 7) + b"\x03\x81\xa4text", "Note.text: the header ends too early"),
        (struct.pack("<I", 10) + b"\x03\x81\xa4text\xa5ab", "Note.text: "),
        (struct.pack("<I", 14) + b"\x02\x81\xa6counts\x82\x01\x02\x01\x03", "key 1 comes twice"),
        (struct.pack("<I", 16) + b"\x03\x82" + 2 * b"\xa4text\xa1x", "repeated field"),
        (struct.pack("<I", 2) + b"\x03\xde", "Note: "),
        (struct.pack("<I", 1) + b"\x03", "Note: the header ends too early"),
        (struct.pack("<I", 2) + b"\xc0\x80", "message number must be of type int, not nil"),
        (struct.pack("<I", 5) + b"\x03\x81\xc4\x01t", "Note: a field name must be of type str"),
        (struct.pack("<I", 12) + b"\x02\x81\xa6counts\x81\xa1x", "key must be of type int, not"),
        (struct.pack("<I", 16) + b"\x02\x81\xa6counts\x84" + 6 * b"\x01", "announces 4 items"),
        (struct.pack("<I", 12) + b"\x02\x81\xa6deltas\x93\xc0\xc0", "announces 3 items"),
        (encoded({"f" * 78: 1}, number=3), f"unknown or repeated field '{'f' * 78}'"),
        (encoded({"f" * 79: 1}, number=3), f"unknown or repeated field '{'f' * 76}..."),
        (struct.pack("<I", 10) + b"\x03\x81\xa4text\xa1x\xc0", "the header's last field"),
        (struct.pack("<I", 9) + b"\x03\x81\xa4text\xa1x" + bytes(9), "ends in the padding"),
        (struct.pack("<I", 9) + b"\x03\x81\xa4text\xa1x" + bytes(51), "ends in the padding"),
        (struct.pack("<I", 5) + b"\x03\xdf\xff\xff\xff", "Note: "),
        (struct.pack("<I", 7) + b"\x03\xdf\xff\xff\xff\xff", "header of 7 bytes in a message"),
        (struct.pack("<I", 14) + b"\x03\xdf\xff\xff\xff\xff", "header of 14 bytes in a"),
        (struct.pack("<I", 6) + b"\x03\xdf\xff\xff\xff\xff", "more than there are bytes"),
        (struct.pack("<I", 2**31) + b"\x03", "header of 2147483648 bytes in a message of 5"),
        (b"\0\0\0\0", "a header of 0 bytes in a message of 4"),
        (b"\0\0\0\0\x03", "a header of 0 bytes in a message of 5"),
        (b"\0\0\0", "a message of 3 bytes has no header"),
        (b"", "a message of 0 bytes has no header"),
    ],
)
def test_a_malformed_message_is_refused_with_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        CODEC.decode(data)
    assert words in str(caught.value)


def nested(levels: int) -> dict[str, Any]:
    """The slots of a task whose innermost value is so many levels below it."""
    slots: Any = 1
    for _ in range(levels - 2):
        slots = {"s": slots}
    return {"h": slots}


def test_values_nest_24_deep_and_no_deeper() -> None:
    allowed = Task(1, np.ones(1), slots=nested(24))
    assert CODEC.decode(bytearray(bytes(CODEC.encode(allowed)))).slots == nested(24)
    with pytest.raises(MessageTypeError, match="24 deep"):
        CODEC.encode(Task(1, np.ones(1), slots=nested(25)))
    for levels in (25, 200):
        with pytest.raises(MalformedMessage, match="deep"):
            CODEC.decode(encoded(task(ext(1, 1, 0, 0), slots=nested(levels))))


Nested = Union[None, "list[Nested]", "dict[str, Nested]"]
Chain = Union[None, "tuple[int, Chain]"]


@dataclass(frozen=True)
class Shaped:
    kind: Literal["one", "two"]
    row: tuple[int, str] = (1, "a")
    chain: Chain = None
    nested: Nested = None


SHAPED = MessageCodec({1: Shaped})


def levels(number: int, wrap: Callable[[Any], Any]) -> Any:
    value = None
    for _ in range(number):
        value = wrap(value)
    return value


@pytest.mark.parametrize("field", ["chain", "nested list", "nested dict"])
def test_each_kind_of_container_nests_24_deep_and_no_deeper(field: str) -> None:
    wrap: Callable[[Any], Any] = {
        "chain": lambda value: (1, value),
        "nested list": lambda value: [value],
        "nested dict": lambda value: {"a": value},
    }[field]
    name = field.split()[0]
    allowed, deep = (Shaped("one", **{name: levels(number, wrap)}) for number in (23, 24))
    assert SHAPED.decode(bytes(SHAPED.encode(allowed))) == allowed
    with pytest.raises(MessageTypeError, match="24 deep"):
        SHAPED.encode(deep)
    header = {"kind": "one", "row": [1, "a"], "chain": None, "nested": None}
    packed = msgpack.packb(1) + msgpack.packb({**header, name: levels(24, wrap)})
    with pytest.raises(MalformedMessage, match="24 deep"):
        SHAPED.decode(struct.pack("<I", len(packed)) + packed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"kind": "two"}, None),
        ({"kind": "three"}, "must be one of ('one', 'two'), not 'three'"),
        ({"kind": 1}, "Shaped.kind"),
        ({"row": (1,)}, "Shaped.row must have 2 items, not 1"),
        ({"row": (1, "a", "b")}, "Shaped.row must have 2 items, not 3"),
        ({"row": ("a", 1)}, "Shaped.row[0]"),
        ({"row": (1, 2)}, "Shaped.row[1]"),
    ],
)
def test_choices_and_rows_of_fixed_length_are_checked_on_both_ends(
    change: dict[str, Any], words: str | None
) -> None:
    header = {"kind": "one", "row": (1, "a"), "chain": None, "nested": None, **change}
    packed = msgpack.packb(1) + msgpack.packb(header)
    data = struct.pack("<I", len(packed)) + packed
    if words is None:
        assert bytes(SHAPED.encode(Shaped(**header))) == data
        assert SHAPED.decode(data) == Shaped(**header)
        return
    with pytest.raises(MessageTypeError) as unsent:
        SHAPED.encode(Shaped(**header))
    with pytest.raises(MalformedMessage) as refused:
        SHAPED.decode(data)
    assert words in str(unsent.value)
    assert words in str(refused.value)


def test_too_many_values_are_refused_before_they_are_built() -> None:
    many = {"counts": dict.fromkeys(range(600_000), 0)}
    header = {"client": "c", "accepted": True, "loss": None, **many, "deltas": [], "note": b""}
    with pytest.raises(MalformedMessage, match="1048576"):
        CODEC.decode(encoded(header, number=2))


def test_both_ends_count_the_values_of_a_message_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    message = Update("c", True, 0.5, {1: 2, 3: 4}, [np.ones(1), np.ones(0)])
    # The number, the message, 6 names and 6 values, 2 keys and 2 values, and 2 arrays.
    data, values = bytes(CODEC.encode(message)), 2 + 12 + 4 + 2
    assert CODEC.decode_counted(data)[1] == values
    monkeypatch.setattr(payload, "MAX_VALUES", values)
    monkeypatch.setattr(codec, "MAX_VALUES", values)
    assert bytes(CODEC.encode(message)) == data
    assert same(CODEC.decode(data), message)
    monkeypatch.setattr(payload, "MAX_VALUES", values - 1)
    monkeypatch.setattr(codec, "MAX_VALUES", values - 1)
    words = rf"Update\.note: more than {values - 1} values"
    with pytest.raises(MessageTypeError, match=words):
        CODEC.encode(message)
    with pytest.raises(MalformedMessage, match=words):
        CODEC.decode(data)


@dataclass(frozen=True)
class Checked:
    share: float
    vector: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError("share must be between 0 and 1")


def test_a_types_own_checks_run_on_arrival() -> None:
    codec = MessageCodec({1: Checked})
    data = bytearray(bytes(codec.encode(Checked(0.5))))
    position = data.index(struct.pack(">d", 0.5))
    data[position : position + 8] = struct.pack(">d", 7.0)
    with pytest.raises(MalformedMessage, match="share"):
        codec.decode(data)


Item = typing.TypeVar("Item")


def named(name: str, meaning: Any, *parameters: Any) -> Any:
    """What `type Name[...] = ...` makes; before Python 3.12 only the meaning itself."""
    make = getattr(typing, "TypeAliasType", None)
    return make(name, meaning, type_params=parameters) if make else meaning


Numbers = named("Numbers", tuple[int, ...])
Pair = named("Pair", tuple[Item, Item], Item)


@dataclass(frozen=True)
class Named:
    numbers: Numbers
    pair: Pair[str]


def test_a_type_alias_is_resolved() -> None:
    codec, value = MessageCodec({1: Named}), Named((1, 2, 3), ("a", "b"))
    assert codec.decode(bytes(codec.encode(value))) == value
    with pytest.raises(MessageTypeError):
        codec.encode(Named((1, "2"), ("a", "b")))


def test_an_array_of_another_dtype_than_annotated_is_refused_on_both_ends() -> None:
    codec = MessageCodec({1: Checked})
    with pytest.raises(MessageTypeError, match=r"float32.*float64"):
        codec.encode(Checked(0.5, np.ones(2)))
    good = bytearray(bytes(codec.encode(Checked(0.5, np.ones(2, np.float32)))))
    position = good.index(struct.pack("<BBQ", 1, 1, 0))
    good[position] = 10  # uint32: as many bytes, another meaning
    with pytest.raises(MalformedMessage, match="float32"):
        codec.decode(good)


def record(name: str, **fields: Any) -> type:
    return make_dataclass(name, fields.items(), frozen=True)


@dataclass
class Mutable:
    round: int


@dataclass(frozen=True)
class Derived:
    round: int
    twice: int = field(init=False, default=0)


@dataclass(frozen=True)
class Fitting:
    round: int


@pytest.mark.parametrize("number", [0, 1, 127, 128, 65535])
def test_a_number_of_up_to_two_bytes_is_the_first_value_of_its_messages(number: int) -> None:
    codec = MessageCodec({number: Fitting})
    data = bytes(codec.encode(Fitting(3)))
    assert data == encoded({"round": 3}, number=number)
    assert codec.decode(data) == Fitting(3)
    assert number_in(data) == number


@dataclass(frozen=True)
class Containers:
    a_list: list[int]
    a_tuple: tuple[int, ...]
    a_sequence: Sequence[int]
    a_mapping: Mapping[str, int]


def test_a_container_is_read_as_the_type_that_is_named() -> None:
    codec = MessageCodec({1: Containers})
    sent = Containers([1], (2,), (3,), {"a": 4})
    assert codec.decode(bytes(codec.encode(sent))) == sent
    others = Containers((1,), [2], [3], {"a": 4})  # type: ignore[arg-type]
    assert bytes(codec.encode(others)) == bytes(codec.encode(sent))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        *(({number: Fitting}, repr(number)) for number in (-1, 1 << 16, "1", None)),
        ({1: Fitting, 2: Fitting}, "Fitting has two numbers"),
        ({1: record("Loose", one=Any)}, "Loose: a field of type"),
        ({1: Mutable}, "Mutable must be a frozen dataclass"),
        *(
            ({1: record("Two", one=either)}, f"Two: {either} has two members")
            for either in (
                list[int] | tuple[str, ...],
                dict[str, int] | dict[str, str],
                dict[str, int] | dict[int, int],
            )
        ),
        ({1: record("Two", one=dict[str, int] | Fitting)}, "has two members"),
        ({1: Derived}, "Derived: a field with init=False"),
        ({1: record("N", one=Literal[1, 2])}, "N: a field of type typing.Literal[1, 2]"),
        ({1: record("Imaginary", one=npt.NDArray[np.complex64])}, "Imaginary: arrays of complex64"),
        ({1: record("No", one="Gone")}, "No: a type hint cannot be resolved (name 'Gone'"),
        ({1: dict}, "<class 'dict'> must be a frozen dataclass"),
        ({1: dict[str, int]}, "dict[str, int] must be a frozen dataclass"),
    ],
)
def test_an_unsupported_type_or_number_is_refused_in_a_table(table: Any, words: str) -> None:
    with pytest.raises(MessageTypeError, match=re.escape(words)):
        MessageCodec(table)


Loop = Union[None, int, "Loop"]


One = Union[None, "Other"]
Other = Union[int, "dict[str, One]", "One"]


@dataclass(frozen=True)
class Looped:
    value: Loop
    other: One = None
    either: dict[str, One] | dict[str, Other] = field(default_factory=dict)


def test_an_alias_may_contain_itself() -> None:
    looped = MessageCodec({1: Looped})
    for value in (None, 7):
        assert looped.decode(bytes(looped.encode(Looped(value)))) == Looped(value)
    for other in (None, 3, {"a": {"b": 4, "c": None}}):
        sent = Looped(None, other, {"d": other})
        assert looped.decode(bytes(looped.encode(sent))) == sent
    with pytest.raises(MessageTypeError, match=r"Looped\.other\['a'\]"):
        looped.encode(Looped(None, {"a": "x"}))  # type: ignore[dict-item]
    with pytest.raises(MessageTypeError, match=r"Looped\.value"):
        looped.encode(Looped("x"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "scalar", [np.float32(0.5), np.float64(1e300), np.float16(2.0), np.int64(-3), np.uint8(7)]
)
def test_a_numpy_number_becomes_a_python_number(scalar: Any) -> None:
    value = float(scalar)
    sent = Update("c", True, loss=scalar, counts={1: np.int64(9)})  # type: ignore[dict-item]
    assert bytes(CODEC.encode(sent)) == bytes(CODEC.encode(Update("c", True, value, {1: 9})))
    for one in (scalar, np.bool_(True), np.str_("x")):
        slots = {"hook": {"value": one}}
        task = CODEC.decode(bytes(CODEC.encode(Task(1, np.zeros(1), slots=slots))))
        assert same(task.slots["hook"]["value"], one.item())


@dataclass(frozen=True)
class Counted:
    name: str
    number: int = field(default=1, metadata={"optional": True})


def test_an_optional_field_travels_only_if_it_has_another_value() -> None:
    codec = MessageCodec({1: Counted})
    sizes = []
    for number in (1, 2):
        data = bytes(codec.encode(Counted("a", number)))
        assert codec.decode(data) == Counted("a", number)
        assert (b"number" in data) == (number != 1)
        sizes.append(len(data))
    assert sizes[1] - sizes[0] == len("?number?")
