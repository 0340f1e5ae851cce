"""docs/protocol.md is complete: each type has an example that decodes, and its tables are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedmx.protocol.messages import CODEC, SMALL_BYTES
from layers.network import Limits, MessageCodec
from layers.network.control import CONTROL
from layers.network.frames import CHUNK_BYTES, MAX_CONTROL_BYTES, Kind, wire_size
from tests.fedmx.golden.examples import shown
from tests.fedmx.golden.values import CONTROL_WORDS, MESSAGES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```text\n(\w+\(.*?)\n\n([0-9a-f\n]+?)\n```$", re.DOTALL | re.MULTILINE)
EXAMPLES = {text.split("(")[0]: (text, data) for text, data in EXAMPLE.findall(PAGE)}


def codec_of(name: str) -> MessageCodec:
    return CONTROL if name in {cls.__name__ for cls in CONTROL._numbers} else CODEC


def test_every_message_and_every_word_of_control_has_an_example() -> None:
    every = {cls.__name__ for codec in (CODEC, CONTROL) for cls in codec._numbers}
    assert set(EXAMPLES) == every
    kept = {type(value).__name__ for value in (*MESSAGES.values(), *CONTROL_WORDS.values())}
    assert set(EXAMPLES) == kept


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_bytes_of_an_example_are_the_value_beside_it(name: str) -> None:
    text, data = EXAMPLES[name]
    payload = bytes.fromhex(data)
    value = codec_of(name).decode(payload)
    assert " ".join(shown(value).split()) == " ".join(text.split())
    assert bytes(codec_of(name).encode(value)) == payload


def test_the_table_of_messages_has_the_numbers_and_limits_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| [^|]+ \| (\S+ \S+) \|$", PAGE, re.MULTILINE)
    limits = {True: "4 MiB", False: "1 GiB"}
    found = {int(number): (name, limit) for number, name, limit in rows}
    assert SMALL_BYTES == 4 << 20
    assert found == {
        number: (cls.__name__, limits[CODEC._max_bytes.get(cls) is not None])
        for cls, number in CODEC._numbers.items()
    }


def test_the_table_of_frames_has_the_kinds_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", PAGE, re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {kind.name: kind.value for kind in Kind}
    assert f"1 to {CHUNK_BYTES:,} bytes, every other payload at most {MAX_CONTROL_BYTES:,}" in PAGE
    assert wire_size(1_000_000) == 10 + 8 + 10 * 4 + 1_000_000


def test_the_table_of_limits_has_the_defaults_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    units = {"GiB": 1 << 30, "MiB": 1 << 20}
    for name, default in vars(Limits()).items():
        if default is None:
            assert rows[name] == "a quarter of the memory"
            continue
        number, _, unit = rows[name].partition(" ")
        assert float(number.replace(",", "")) * units.get(unit, 1) == default, name
