"""The examples of docs/protocol.md: every message and every word of control, as value and as bytes.

    python -m tests.fedmx.golden.examples

prints section 8 of the page from the golden files' values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fedmx.protocol.messages import CODEC
from layers.network.control import CONTROL
from tests.fedmx.golden.values import CONTROL_WORDS, MESSAGES

WIDTH = 118
TABLES = ((CONTROL, CONTROL_WORDS), (CODEC, MESSAGES))
TITLE = "## 8. Examples"
TEXT = (
    "Every word of the handshake and every message, as its value and as all its bytes in "
    "hexadecimal. `tests/fedmx/golden/test_examples.py` decodes what is printed here."
)


def shown(value: Any) -> str:
    """Return a value as the page shows it."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = (f"{one.name}={shown(getattr(value, one.name))}" for one in fields(value))
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name} {value.shape} {value.tolist()}"
    if isinstance(value, bytes):
        return f"hex {value.hex()}" if value else "no bytes"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return repr(value)


def section() -> str:
    """Return the page's section."""
    parts = [TITLE, textwrap.fill(TEXT, WIDTH)]
    for codec, table in TABLES:
        for value in table.values():
            text = textwrap.fill(shown(value), WIDTH, break_on_hyphens=False)
            data = bytes(codec.encode(value)).hex()
            lines = "\n".join(textwrap.wrap(data, 96))
            parts.append(f"```text\n{text}\n\n{lines}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(section(), end="")
